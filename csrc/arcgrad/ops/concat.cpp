#include "arcgrad/algorithms/concat.h"

#include "arcgrad/ops.h"

namespace arcgrad {

Graph concat(const std::vector<Graph>& graphs) { return concat_as("concat", graphs); }

}  // namespace arcgrad
