#include "arcgrad/trellis/forward_score.h"

#include "arcgrad/algorithms/log_partition.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/of_arcs.h"

namespace arcgrad {
namespace {

class ForwardScoreRule final : public Rule {
 public:
  ForwardScoreRule(std::shared_ptr<const LogPartition> total, Graph graph)
      : total_(std::move(total)), graph_(std::move(graph)) {}

  // The gradient of a log-sum over paths is the posterior of each arc.
  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    total_->add_posteriors(deltas[0][0], *grads[0]);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>&) const override {
    return {record_posteriors(op, graph_, total_, deltas[0], graph_.dtype())};
  }

 private:
  std::shared_ptr<const LogPartition> total_;
  Graph graph_;
};

}  // namespace

Graph forward_score_of_arcs(const char* op, const Graph& graph) {
  const bool keep = tracks(graph);
  auto total = std::make_shared<const LogPartition>(op, graph, keep);
  Weights value = Weights::scalar(total->value());
  std::unique_ptr<Rule> rule;
  if (keep) rule = std::make_unique<ForwardScoreRule>(std::move(total), graph.snapshot());
  return record(op, scalar_topology(), std::move(value), {&graph, 1}, std::move(rule));
}

Graph forward_score(const Graph& graph) {
  if (!graph.product() && !graph.topology().dense())
    return forward_score_of_arcs("forward_score", graph);
  return trellis::forward_scores("forward_score", {graph})[0];
}

std::vector<Graph> forward_score(const std::vector<Graph>& graphs) {
  return trellis::forward_scores("forward_score", graphs);
}

}  // namespace arcgrad
