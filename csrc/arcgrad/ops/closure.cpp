#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph closure(const Graph& graph) {
  const Topology& t = graph.topology();
  const int64_t num_epsilon[] = {static_cast<int64_t>(t.start().size() + t.accept().size())};
  DisjointUnion beside("closure", {graph}, 1, num_epsilon);
  beside.arrays.start = beside.arrays.accept = {0};
  for (int32_t n : t.start()) beside.add_epsilon(0, beside.node(0, n));
  for (int32_t n : t.accept()) beside.add_epsilon(beside.node(0, n), 0);
  return std::move(beside).record();
}

}  // namespace arcgrad
