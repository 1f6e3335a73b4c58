#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph optional(const Graph& graph) {
  // Node 0 accepts the empty string.
  DisjointUnion joined("optional", {graph}, 1);
  joined.arrays.start = joined.arrays.accept = {0};
  joined.add_starts(0);
  joined.add_accepts(0);
  return std::move(joined).record();
}

}  // namespace arcgrad
