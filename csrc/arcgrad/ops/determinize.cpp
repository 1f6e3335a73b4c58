#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/subset_construction.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

Graph determinize(const Graph& graph, Semiring semiring, std::optional<int64_t> max_nodes) {
  constexpr char kOp[] = "determinize";
  require(!max_nodes || *max_nodes > 0, kOp, "max_nodes must be 1 or more, but it is ",
          max_nodes.value_or(0));
  require_no_failures(kOp, graph.topology());
  const Graph removed = remove(graph, kEpsilon, kEpsilon, semiring);
  constexpr int64_t kMany = 1'000'000;
  return construct_subsets(
      removed, LabelCodes(removed.topology()),
      {.op = kOp,
       .semiring = semiring,
       .max_nodes = max_nodes.value_or(kMany + 10 * int64_t{removed.num_nodes()}),
       .graph_name = removed.num_nodes() == graph.num_nodes() ? "the graph"
                                                              : "the graph without epsilon arcs"});
}

}  // namespace arcgrad
