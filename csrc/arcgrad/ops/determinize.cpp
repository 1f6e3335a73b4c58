#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_limit.h"
#include "arcgrad/algorithms/subset_construction.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/remove.h"

namespace arcgrad {

Graph determinize(const Graph& graph, Semiring semiring, std::optional<int64_t> max_nodes) {
  constexpr const char* kOp = "determinize";
  require_no_failures(kOp, graph.topology());
  const int64_t limit = node_limit(kOp, graph, max_nodes);
  const Graph removed = remove_epsilons(kOp, graph, semiring);
  return construct_subsets(removed, LabelCodes(removed.topology()),
                           {.op = kOp,
                            .semiring = semiring,
                            .max_nodes = limit,
                            .is_original = removed.num_nodes() == graph.num_nodes()});
}

}  // namespace arcgrad
