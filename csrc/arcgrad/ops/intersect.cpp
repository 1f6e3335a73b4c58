#include "arcgrad/algorithms/product.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph intersect(const Graph& first, const Graph& second) {
  return intersect_as("intersect", first, second);
}

}  // namespace arcgrad
