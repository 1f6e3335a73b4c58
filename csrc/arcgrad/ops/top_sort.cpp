#include <numeric>

#include "arcgrad/error.h"
#include "arcgrad/ops.h"
#include "arcgrad/renumber.h"

namespace arcgrad {
namespace {

/// A node on a cycle of a topology that has one.
int32_t node_on_cycle(const Topology& t) {
  const Order& order = t.order();
  for (size_t c = 0; c + 1 < order.component.size(); ++c)
    if (order.component[c + 1] - order.component[c] > 1) return order.nodes[order.component[c]];
  const auto src = t.src(), dst = t.dst();
  for (size_t a = 0; a < src.size(); ++a)
    if (src[a] == dst[a]) return src[a];
  return -1;
}

}  // namespace

Graph top_sort(const Graph& graph) {
  const Topology& t = graph.topology();
  if (!t.is_acyclic())
    fail("top_sort", "the graph must have no cycle, but node ", node_on_cycle(t), " lies on one");
  if (t.order().nodes.empty())
    return record_moves("top_sort", graph.topology_ptr(), {{graph, ArcMap::identity()}});
  std::vector<int32_t> node(static_cast<size_t>(t.num_nodes()));
  Column arcs(static_cast<size_t>(t.num_arcs()));
  for (int32_t p = 0; p < t.num_nodes(); ++p) node[t.order().node(p)] = p;
  std::iota(arcs.begin(), arcs.end(), 0);
  return record_renumbered("top_sort", graph, node, t.num_nodes(), std::move(arcs));
}

}  // namespace arcgrad
