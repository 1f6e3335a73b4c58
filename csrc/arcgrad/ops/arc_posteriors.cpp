#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/algorithms/log_partition.h"
#include "arcgrad/ops.h"
#include "arcgrad/trellis/forward_score.h"
#include "arcgrad/trellis/viterbi.h"

namespace arcgrad {

Graph arc_posteriors(const Graph& graph, Semiring semiring) {
  if (semiring == Semiring::log) {
    auto total = std::make_shared<const LogPartition>("arc_posteriors", graph, true);
    return record_posteriors("arc_posteriors", graph, std::move(total), scalar_graph(1.0, false),
                             graph.dtype());
  }
  // The best path does not change under small changes of the weights: no gradient flows.
  Weights out = Weights::zeros(graph.num_weights(), graph.dtype());
  dispatch(graph.dtype(), [&](auto kind) {
    auto values = out.fill<decltype(kind)>();
    for (int32_t a : find_best_path("arc_posteriors", graph).arcs) values[a] += 1;
  });
  return record_moves("arc_posteriors", graph.topology_ptr(),
                      {{Graph(graph.topology_ptr(), std::move(out)), ArcMap::identity()},
                       {graph, ArcMap::gather(std::vector<int32_t>(
                                   static_cast<size_t>(graph.num_weights()), -1))}});
}

Graph arc_posteriors(const Graph& product, const Graph& wrt, Semiring semiring) {
  return semiring == Semiring::log ? trellis::factor_posteriors("arc_posteriors", product, wrt)
                                   : trellis::factor_counts("arc_posteriors", product, wrt);
}

}  // namespace arcgrad
