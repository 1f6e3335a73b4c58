#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph optional(const Graph& graph) {
  const Topology& t = graph.topology();
  // Node 0 accepts the empty string.
  DisjointUnion joined("optional", {graph}, 1);
  joined.arrays.start = joined.arrays.accept = {0};
  for (int32_t n : t.start()) joined.arrays.start.push_back(joined.node(0, n));
  for (int32_t n : t.accept()) joined.arrays.accept.push_back(joined.node(0, n));
  return std::move(joined).record();
}

}  // namespace arcgrad
