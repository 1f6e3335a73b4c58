#include <numeric>

#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph top_sort(const Graph& graph) {
  const Topology& t = graph.topology();
  require_acyclic("top_sort", t);
  if (t.order().nodes.empty())
    return record_moves("top_sort", graph.topology_ptr(), {{graph, ArcMap::identity()}});
  Column node(static_cast<size_t>(t.num_nodes()));
  Column arcs(static_cast<size_t>(t.num_arcs()));
  for (int32_t p = 0; p < t.num_nodes(); ++p) node[t.order().node(p)] = p;
  std::iota(arcs.begin(), arcs.end(), 0);
  Arrays sorted = renumber(t, node, t.num_nodes(), arcs);
  return record_moves("top_sort", std::move(sorted), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
