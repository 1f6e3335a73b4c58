#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/label_delay.h"
#include "arcgrad/algorithms/node_limit.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/remove.h"

namespace arcgrad {

Graph synchronize(const Graph& graph, Semiring semiring, std::optional<int64_t> max_nodes) {
  constexpr const char* kOp = "synchronize";
  require_no_failures(kOp, graph.topology());
  const int64_t limit = node_limit(kOp, graph, max_nodes);
  return remove_epsilons(kOp, delay_labels(kOp, graph, DelayRule::pairs, limit), semiring);
}

}  // namespace arcgrad
