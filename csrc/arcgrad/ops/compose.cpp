#include "arcgrad/algorithms/product.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph compose(const Graph& first, const Graph& second) {
  return compose_as("compose", first, second);
}

}  // namespace arcgrad
