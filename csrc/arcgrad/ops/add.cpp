#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph add(const Graph& first, const Graph& second) { return record_sum("add", first, second, 1.0); }

}  // namespace arcgrad
