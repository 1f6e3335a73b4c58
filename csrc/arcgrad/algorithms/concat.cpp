#include "arcgrad/algorithms/concat.h"

#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/algorithms/failure.h"

namespace arcgrad {

Graph concat_as(const char* op, const std::vector<Graph>& graphs) {
  // Epsilon arcs lie between the arcs of two graphs: if accept nodes come last, as in chains, all
  // arcs of the result are ordered by their source nodes.
  for (size_t i = 0; i + 1 < graphs.size(); ++i) require_ends(op, graphs[i].topology());
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
  joined.add_starts(0);
  joined.add_accepts(graphs.size() - 1);
  for (size_t i = 0; i + 1 < graphs.size(); ++i)
    for (int32_t from : graphs[i].topology().accept())
      for (int32_t to : graphs[i + 1].topology().start())
        joined.add_epsilon({from, i}, {to, i + 1});
  return std::move(joined).record();
}

}  // namespace arcgrad
