#include <numeric>
#include <utility>

#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

Graph delete_arcs(const Graph& graph, std::span<const int32_t> arcs) {
  const Topology& t = graph.topology();
  std::vector<bool> is_deleted(static_cast<size_t>(t.num_arcs()));
  for (const int32_t a : arcs) {
    require(a >= 0 && a < t.num_arcs(), "delete_arcs", "arcs must be below ", t.num_arcs(),
            ", the number of arcs, but one is ", a);
    is_deleted[a] = true;
  }
  Column node(static_cast<size_t>(t.num_nodes())), kept;
  std::iota(node.begin(), node.end(), 0);
  for (int32_t a = 0; a < t.num_arcs(); ++a)
    if (!is_deleted[a]) kept.push_back(a);
  Arrays arrays = renumber(t, node, t.num_nodes(), kept);
  return record_moves("delete_arcs", std::move(arrays), {{graph, ArcMap::gather(std::move(kept))}});
}

}  // namespace arcgrad
