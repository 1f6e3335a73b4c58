#include "arcgrad/algorithms/difference.h"

#include "arcgrad/ops.h"

namespace arcgrad {

Graph difference(const Graph& first, const Graph& second, std::optional<int64_t> max_arcs) {
  require_acceptor("difference", "the first graph", first);
  require_acceptor("difference", "the second graph", second);
  return difference_as("difference", first, second, max_arcs);
}

}  // namespace arcgrad
