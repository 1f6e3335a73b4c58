#include "arcgrad/algorithms/concat.h"

#include "arcgrad/algorithms/disjoint_union.h"

namespace arcgrad {

Graph concat_as(const char* op, const std::vector<Graph>& graphs) {
  // Epsilon arcs lie between the arcs of two graphs: if accept nodes come last, as in chains, all
  // arcs of the result are ordered by their source nodes.
  std::vector<int64_t> num_epsilon;
  for (size_t i = 0; i + 1 < graphs.size(); ++i)
    num_epsilon.push_back(static_cast<int64_t>(graphs[i].topology().accept().size() *
                                               graphs[i + 1].topology().start().size()));
  DisjointUnion joined(op, graphs, 0, num_epsilon);
  if (graphs.empty()) {
    joined.arrays.num_nodes = 1;
    joined.arrays.start = joined.arrays.accept = {0};
    return std::move(joined).record();
  }
  for (int32_t n : graphs.front().topology().start()) joined.arrays.start.push_back(n);
  for (int32_t n : graphs.back().topology().accept())
    joined.arrays.accept.push_back(joined.node(graphs.size() - 1, n));
  for (size_t i = 0; i + 1 < graphs.size(); ++i)
    for (int32_t from : graphs[i].topology().accept())
      for (int32_t to : graphs[i + 1].topology().start())
        joined.add_epsilon(joined.node(i, from), joined.node(i + 1, to));
  return std::move(joined).record();
}

}  // namespace arcgrad
