#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph plus(const Graph& graph) {
  const Topology& t = graph.topology();
  const int64_t num_epsilon[] = {static_cast<int64_t>(t.start().size() * t.accept().size())};
  DisjointUnion joined("plus", {graph}, 0, num_epsilon);
  joined.arrays.start.assign(t.start().begin(), t.start().end());
  joined.arrays.accept.assign(t.accept().begin(), t.accept().end());
  for (int32_t from : t.accept())
    for (int32_t to : t.start()) joined.add_epsilon(from, to);
  return std::move(joined).record();
}

}  // namespace arcgrad
