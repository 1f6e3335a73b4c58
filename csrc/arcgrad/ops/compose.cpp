#include "arcgrad/algorithms/product.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph compose(const Graph& first, const Graph& second, std::optional<int64_t> max_arcs) {
  return compose_as("compose", first, second, compose_within(max_arcs));
}

}  // namespace arcgrad
