#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph concat(const std::vector<Graph>& graphs) {
  // Between the graphs, so that arcs stay in the order of their nodes if accept nodes come last.
  std::vector<int64_t> num_epsilon;
  for (size_t i = 0; i + 1 < graphs.size(); ++i)
    num_epsilon.push_back(static_cast<int64_t>(graphs[i].topology().accept().size() *
                                               graphs[i + 1].topology().start().size()));
  DisjointUnion beside("concat", graphs, 0, num_epsilon);
  if (graphs.empty()) {
    beside.arrays.num_nodes = 1;
    beside.arrays.start = beside.arrays.accept = {0};
    return std::move(beside).record();
  }
  for (int32_t n : graphs.front().topology().start()) beside.arrays.start.push_back(n);
  for (int32_t n : graphs.back().topology().accept())
    beside.arrays.accept.push_back(beside.node(graphs.size() - 1, n));
  for (size_t i = 0; i + 1 < graphs.size(); ++i)
    for (int32_t from : graphs[i].topology().accept())
      for (int32_t to : graphs[i + 1].topology().start())
        beside.add_epsilon(beside.node(i, from), beside.node(i + 1, to));
  return std::move(beside).record();
}

}  // namespace arcgrad
