#define ARCGRAD_ISA baseline
#include "arcgrad/trellis/best_steps.h"
#include "arcgrad/trellis/curvature_steps.h"
#include "arcgrad/trellis/dense_steps.h"
#include "arcgrad/trellis/diagonal_steps.h"
#include "arcgrad/trellis/frames_steps.h"
#include "arcgrad/trellis/lanes_steps.h"
#include "arcgrad/trellis/outer_steps.h"
#include "arcgrad/trellis/screen_steps.h"
