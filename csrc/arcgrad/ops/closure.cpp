#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph closure(const Graph& graph) {
  const Topology& t = graph.topology();
  require_ends("closure", t);
  const int64_t num_epsilon[] = {static_cast<int64_t>(t.start().size() + t.accept().size())};
  DisjointUnion joined("closure", {graph}, 1, num_epsilon);
  joined.arrays.start = joined.arrays.accept = {0};
  for (int32_t n : t.start()) joined.add_epsilon({0}, {n, 0});
  for (int32_t n : t.accept()) joined.add_epsilon({n, 0}, {0});
  return std::move(joined).record();
}

}  // namespace arcgrad
