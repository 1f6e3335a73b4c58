#include <algorithm>
#include <limits>

#include "arcgrad/algorithms/concat.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

Graph power(const Graph& graph, int64_t n) {
  require(n >= 0, "power", "n must be 0 or more, but it is ", n);
  if (n == 0) {
    Arrays arrays;
    arrays.num_nodes = 1;
    arrays.start = arrays.accept = {0};
    // The map takes no arc, but keeps the dtype of the graph and connects the result to the tape.
    return record_moves("power", std::move(arrays), {{graph, ArcMap::gather({})}});
  }
  require(n <= std::numeric_limits<int32_t>::max(), "power", "n must be below 2^31, but it is ", n);
  require_size("power", "nodes", n * std::max(graph.num_nodes(), 1));
  return concat_as("power", std::vector<Graph>(static_cast<size_t>(n), graph));
}

}  // namespace arcgrad
