#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/label_codes.h"
#include "arcgrad/algorithms/subset_construction.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/remove.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

Graph optimize(const Graph& graph, Semiring semiring, double max_growth) {
  constexpr const char* kOp = "optimize";
  require(max_growth >= 1.0, kOp, "max_growth must be 1 or more, but it is ", max_growth);
  require_no_failures(kOp, graph.topology());
  const Graph useful = connect(graph);
  const auto is_small = [&](const Graph& result) {
    return result.num_arcs() <= max_growth * useful.num_arcs();
  };
  const Graph removed = remove_epsilons(kOp, useful, semiring);
  if (!is_small(removed)) return useful;
  // A connected graph has at most one node more than arcs.
  const Graph deterministic =
      construct_subsets(removed, LabelCodes(removed.topology()),
                        {.op = kOp,
                         .semiring = semiring,
                         .max_nodes = static_cast<int64_t>(max_growth * useful.num_arcs()) + 1,
                         .may_fail = true});
  return deterministic && is_small(deterministic) ? minimize(deterministic) : removed;
}

}  // namespace arcgrad
