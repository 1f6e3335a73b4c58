#include <numeric>

#include "arcgrad/ops.h"
#include "arcgrad/renumber.h"

namespace arcgrad {

Graph top_sort(const Graph& graph) {
  const Topology& t = graph.topology();
  require_acyclic("top_sort", t);
  if (t.order().nodes.empty())
    return record_moves("top_sort", graph.topology_ptr(), {{graph, ArcMap::identity()}});
  std::vector<int32_t> node(static_cast<size_t>(t.num_nodes()));
  Column arcs(static_cast<size_t>(t.num_arcs()));
  for (int32_t p = 0; p < t.num_nodes(); ++p) node[t.order().node(p)] = p;
  std::iota(arcs.begin(), arcs.end(), 0);
  return record_renumbered("top_sort", graph, node, t.num_nodes(), std::move(arcs));
}

}  // namespace arcgrad
