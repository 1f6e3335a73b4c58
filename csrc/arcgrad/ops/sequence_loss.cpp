#include "arcgrad/trellis/sequence_loss.h"

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/ops.h"
#include "arcgrad/trellis/forward_score.h"

// The trellis computes losses of explicit acceptors in one pass over the emissions. Other losses
// are composed from forward scores.

namespace arcgrad {
namespace {

constexpr char kOp[] = "sequence_loss";

/// The loss of an example without a path: infinite, with a gradient of zero.
Graph infeasible_loss(const Graph& score) {
  const Moved none[] = {{score, ArcMap::gather({-1})}};
  return record(kOp, scalar_topology(), Weights::scalar(-kNegInf), {&score, 1},
                make_moves_rule(none));
}

/// The losses as differences of forward scores, for graphs of any kind.
std::vector<Graph> compose_losses(const std::vector<Graph>& graphs,
                                  const std::vector<Graph>& emissions, bool normalize) {
  const auto intersect = [](const Graph& a, const Graph& b) { return intersect_as(kOp, a, b); };
  const std::vector<Graph> scores =
      trellis::forward_scores(kOp, map2(kOp, intersect, graphs, emissions));
  const std::vector<Graph> totals =
      normalize ? trellis::forward_scores(kOp, emissions) : std::vector<Graph>();
  std::vector<Graph> losses;
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i].item() == kNegInf)
      losses.push_back(infeasible_loss(scores[i]));
    else if (normalize)
      losses.push_back(subtract(totals[totals.size() == 1 ? 0 : i], scores[i]));
    else
      losses.push_back(negate(scores[i]));
  return losses;
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
