// The inner loops for processors with AVX2 and FMA. CMakeLists.txt sets the compiler options. Only
// the loops may be defined here, in the namespace avx2: if a function of another header were
// compiled here, too, the linker could use this AVX2 copy in the whole program.

#define ARCGRAD_ISA avx2
#include "arcgrad/trellis/align/chain_loops.h"
#include "arcgrad/trellis/best/best_loops.h"
#include "arcgrad/trellis/best/prefilter_loops.h"
#include "arcgrad/trellis/hvp/hvp_loops.h"
#include "arcgrad/trellis/kernels/dense_loops.h"
#include "arcgrad/trellis/kernels/diagonal_loops.h"
#include "arcgrad/trellis/kernels/frames_loops.h"
#include "arcgrad/trellis/kernels/lanes_loops.h"
#include "arcgrad/trellis/outer/outer_loops.h"
