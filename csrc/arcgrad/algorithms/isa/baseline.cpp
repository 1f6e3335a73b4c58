#define ARCGRAD_ISA baseline
#include "arcgrad/algorithms/scaled_loops.h"
