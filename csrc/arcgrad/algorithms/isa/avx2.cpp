#define ARCGRAD_ISA avx2
#include "arcgrad/algorithms/scaled_loops.h"
