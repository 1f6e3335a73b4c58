#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/label_delay.h"
#include "arcgrad/algorithms/node_limit.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/remove.h"

namespace arcgrad {

Graph epsilon_normalize(const Graph& graph, Side side, Semiring semiring,
                        std::optional<int64_t> max_nodes) {
  constexpr const char* kOp = "epsilon_normalize";
  require_no_failures(kOp, graph.topology());
  const int64_t limit = node_limit(kOp, graph, max_nodes);
  const DelayRule rule = side == Side::input ? DelayRule::with_input : DelayRule::with_output;
  return remove_epsilons(kOp, delay_labels(kOp, graph, rule, limit), semiring);
}

}  // namespace arcgrad
