#include "arcgrad/algorithms/product.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph intersect(const Graph& first, const Graph& second, std::optional<int64_t> max_arcs) {
  return intersect_as("intersect", first, second, compose_within(max_arcs));
}

}  // namespace arcgrad
