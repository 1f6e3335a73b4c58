#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph union_(const std::vector<Graph>& graphs) {
  DisjointUnion joined("union", graphs);
  for (size_t i = 0; i < graphs.size(); ++i) {
    for (int32_t n : graphs[i].topology().start()) joined.arrays.start.push_back(joined.node(i, n));
    for (int32_t n : graphs[i].topology().accept())
      joined.arrays.accept.push_back(joined.node(i, n));
  }
  return std::move(joined).record();
}

}  // namespace arcgrad
