#include "arcgrad/trellis/sequence_loss.h"

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"
#include "arcgrad/trellis/forward_score.h"

// The trellis computes losses of explicit acceptors in one pass over the emissions. Other losses
// are composed from forward scores.

namespace arcgrad {
namespace {

constexpr char kOp[] = "sequence_loss";

/// The losses as differences of forward scores, for graphs of any kind.
std::vector<Graph> compose_losses(const std::vector<Graph>& graphs,
                                  const std::vector<Graph>& emissions, bool normalize) {
  const auto intersect = [](const Graph& a, const Graph& b) { return intersect_as(kOp, a, b); };
  const std::vector<Graph> scores =
      trellis::forward_scores(kOp, map2(kOp, intersect, graphs, emissions));
  if (!normalize) return map(kOp, negate, scores);
  return map2(kOp, subtract, trellis::forward_scores(kOp, emissions), scores);
}

}  // namespace

Graph sequence_loss(const Graph& graph, const Graph& emissions, bool normalize) {
  return sequence_loss(std::vector{graph}, std::vector{emissions}, normalize)[0];
}

std::vector<Graph> sequence_loss(const std::vector<Graph>& graphs,
                                 const std::vector<Graph>& emissions, bool normalize) {
  batch_size(kOp, graphs.size(), emissions.size());
  if (auto losses = trellis::sequence_losses(kOp, graphs, emissions, normalize))
    return std::move(*losses);
  return compose_losses(graphs, emissions, normalize);
}

}  // namespace arcgrad
