#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph union_(const std::vector<Graph>& graphs) {
  DisjointUnion beside("union", graphs);
  for (size_t i = 0; i < graphs.size(); ++i) {
    for (int32_t n : graphs[i].topology().start()) beside.arrays.start.push_back(beside.node(i, n));
    for (int32_t n : graphs[i].topology().accept())
      beside.arrays.accept.push_back(beside.node(i, n));
  }
  return std::move(beside).record();
}

}  // namespace arcgrad
