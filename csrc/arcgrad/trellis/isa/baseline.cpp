// The inner loops for every processor of the architecture, without AVX2.

#define ARCGRAD_ISA baseline
#include "arcgrad/trellis/align/chain_loops.h"
#include "arcgrad/trellis/best/best_loops.h"
#include "arcgrad/trellis/best/prefilter_loops.h"
#include "arcgrad/trellis/hvp/hvp_loops.h"
#include "arcgrad/trellis/kernels/dense_loops.h"
#include "arcgrad/trellis/kernels/diagonal_loops.h"
#include "arcgrad/trellis/kernels/frames_loops.h"
#include "arcgrad/trellis/kernels/lanes_loops.h"
#include "arcgrad/trellis/outer/outer_loops.h"
