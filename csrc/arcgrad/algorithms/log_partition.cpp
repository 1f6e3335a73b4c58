#include "arcgrad/algorithms/log_partition.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/algorithms/node_weights.h"

// With Z the sum over accepted paths of exp(score), the gradient of log Z is the posterior of each
// arc, and the Hessian times a tangent is the tangent of the posteriors. Both come from PathScores,
// seeded at each accept node with the probability of ending there.

namespace arcgrad {
namespace {

/// The derivative of posteriors * delta with respect to the graph and delta.
class PosteriorsRule final : public Rule {
 public:
  PosteriorsRule(std::shared_ptr<const LogPartition> partition, double delta)
      : partition_(std::move(partition)), delta_(delta) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    if (grads[0]) partition_->add_hvp(deltas[0], delta_, grads[0]->sum());
    if (grads[1])
      ArcMap::identity().apply(Weights::scalar(partition_->jvp(deltas[0])), grads[1]->sum(), 1.0);
  }

 private:
  std::shared_ptr<const LogPartition> partition_;
  double delta_;
};

class ForwardScoreRule final : public Rule {
 public:
  ForwardScoreRule(std::shared_ptr<const LogPartition> partition, Graph graph)
      : partition_(std::move(partition)), graph_(std::move(graph)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    partition_->add_posteriors(deltas[0][0], *grads[0]);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>&) const override {
    return {record_posteriors(op, graph_, partition_, deltas[0], graph_.dtype())};
  }

 private:
  std::shared_ptr<const LogPartition> partition_;
  Graph graph_;
};

}  // namespace

LogPartition::LogPartition(const char* op, const Graph& graph, bool keep)
    : LogPartition(op, expanded(graph.topology_ptr()), graph.weights(), keep) {}

LogPartition::LogPartition(const char* op, const TopologyPtr& topology, const Weights& weights,
                           bool keep)
    : scores_(topology, weights, topology->start(),
              {.op = op, .keep = keep, .targets = topology->accept()}) {
  const auto accept = topology->accept();
  accept_.assign(accept.begin(), accept.end());
  double top = kNegInf;
  for (int32_t n : accept_) top = std::max(top, posterior_.emplace_back(scores_.score(n)));
  if (top == kNegInf) {
    std::ranges::fill(posterior_, 0.0);
    return;
  }
  double sum = 0.0;
  // Comparing with `top` also handles scores of +inf.
  for (double& p : posterior_) sum += p = p == top ? 1.0 : std::exp(p - top);
  for (double& p : posterior_) p /= sum;
  value_ = top + std::log(sum);
}

Buffer<double> LogPartition::seed(double factor) const {
  Buffer<double> seed(static_cast<size_t>(scores_.topology().num_nodes()), 0.0);
  for (size_t i = 0; i < accept_.size(); ++i) seed[accept_[i]] = factor * posterior_[i];
  return seed;
}

double LogPartition::mean(const Buffer<double>& score_tangent) const {
  double mean = 0.0;
  for (size_t i = 0; i < accept_.size(); ++i) mean += posterior_[i] * score_tangent[accept_[i]];
  return mean;
}

void LogPartition::add_posteriors(double factor, Gradient& grad) const {
  scores_.add_vjp(seed(factor), grad);
}

double LogPartition::jvp(const Weights& tangent) const { return mean(scores_.jvp(tangent)); }

void LogPartition::add_hvp(const Weights& tangent, double factor, Weights& grad) const {
  const Buffer<double> score_tangent = scores_.jvp(tangent);
  const double centre = mean(score_tangent);
  Buffer<double> seed_tangent(score_tangent.size(), 0.0);
  for (size_t i = 0; i < accept_.size(); ++i)
    seed_tangent[accept_[i]] = posterior_[i] * (score_tangent[accept_[i]] - centre);
  scores_.add_vjp_tangent(seed(1.0), std::move(seed_tangent), tangent, score_tangent, factor, grad);
}

Graph record_posteriors(const char* op, const Graph& graph,
                        std::shared_ptr<const LogPartition> partition, const Graph& delta,
                        DType dtype) {
  Gradient posteriors(graph.num_weights(), dtype);
  const double factor = delta.item();
  partition->add_posteriors(factor, posteriors);
  const Graph inputs[] = {graph, delta};
  std::unique_ptr<Rule> rule;
  if (tracks(inputs)) rule = std::make_unique<PosteriorsRule>(std::move(partition), factor);
  return record(op, graph.topology_ptr(), posteriors.sum(), inputs, std::move(rule));
}

Graph record_log_partition(const char* op, const Graph& graph,
                           std::shared_ptr<const LogPartition> partition) {
  Weights value = Weights::scalar(partition->value());
  std::unique_ptr<Rule> rule;
  if (tracks(graph))
    rule = std::make_unique<ForwardScoreRule>(std::move(partition), graph.snapshot());
  return record(op, scalar_topology(), std::move(value), {&graph, 1}, std::move(rule));
}

Graph forward_score_of_arcs(const char* op, const Graph& graph) {
  return record_log_partition(op, graph,
                              std::make_shared<const LogPartition>(op, graph, tracks(graph)));
}

}  // namespace arcgrad
