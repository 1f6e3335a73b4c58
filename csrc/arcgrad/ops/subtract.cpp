#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph subtract(const Graph& first, const Graph& second) {
  return record_sum("subtract", first, second, -1.0);
}

}  // namespace arcgrad
