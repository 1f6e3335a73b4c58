#include <numeric>

#include "arcgrad/ops.h"
#include "arcgrad/renumber.h"

namespace arcgrad {

Graph arc_sort(const Graph& graph, bool olabel) {
  const Topology& t = graph.topology();
  std::vector<int32_t> node(static_cast<size_t>(t.num_nodes()));
  std::iota(node.begin(), node.end(), 0);
  return record_renumbered("arc_sort", graph, node, t.num_nodes(),
                           t.index(olabel ? Side::output : Side::input).arc);
}

}  // namespace arcgrad
