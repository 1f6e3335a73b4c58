// The inner loops for processors with AVX2 and FMA. CMakeLists.txt sets the compiler options. No
// other header of arcgrad or the standard library may define functions here: the linker could keep
// the copy that uses AVX2 for the whole program.

#define ARCGRAD_ISA avx2
#include "arcgrad/trellis/best/best_loops.h"
#include "arcgrad/trellis/best/prefilter_loops.h"
#include "arcgrad/trellis/hvp/hvp_loops.h"
#include "arcgrad/trellis/kernels/dense_loops.h"
#include "arcgrad/trellis/kernels/diagonal_loops.h"
#include "arcgrad/trellis/kernels/frames_loops.h"
#include "arcgrad/trellis/kernels/lanes_loops.h"
#include "arcgrad/trellis/outer/outer_loops.h"
