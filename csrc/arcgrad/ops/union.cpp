#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph union_(const std::vector<Graph>& graphs) {
  DisjointUnion joined("union", graphs);
  for (size_t i = 0; i < graphs.size(); ++i) {
    joined.add_starts(i);
    joined.add_accepts(i);
  }
  return std::move(joined).record();
}

}  // namespace arcgrad
