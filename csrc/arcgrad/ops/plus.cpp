#include "arcgrad/algorithms/closure.h"
#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph plus(const Graph& graph) {
  const Topology& t = graph.topology();
  require_ends("plus", t);
  // With the empty string, one or more repetitions are zero or more.
  if (has_empty_path(t)) return closure_as("plus", without_empty_path("plus", graph));
  const int64_t num_epsilon[] = {static_cast<int64_t>(t.start().size() * t.accept().size())};
  DisjointUnion joined("plus", {graph}, 0, num_epsilon);
  joined.add_starts(0);
  joined.add_accepts(0);
  for (int32_t from : t.accept())
    for (int32_t to : t.start()) joined.add_epsilon({from, 0}, {to, 0});
  return std::move(joined).record();
}

}  // namespace arcgrad
