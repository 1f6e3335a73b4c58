#include "arcgrad/algorithms/log_partition.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/algorithms/node_weights.h"

// With Z the sum over accepted paths of exp(score), the gradient of log Z is the posterior of each
// arc, and the Hessian times a tangent is the tangent of the posteriors. Both come from PathScores,
// seeded at each accept node with the probability of ending there. That probability is also the
// gradient of the accept weight.

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

namespace {

PathScores path_scores(const char* op, const Graph& graph, bool keep) {
  const Topology& t = graph.topology();
  PathOptions options{.op = op, .keep = keep};
  options.targets = t.accept();
  std::vector<int32_t> possible;
  if (t.has_node_weights()) {
    options.source_weights = t.first_start_weight();
    possible = possible_ends(t.accept(), graph.accept_weights());
    options.targets = possible;
  }
  return {graph.topology_ptr(), graph.weights(), t.start(), options};
}

}  // namespace

LogPartition::LogPartition(const char* op, const Graph& graph, bool keep)
    : scores_(path_scores(op, graph, keep)) {
  const Topology& t = graph.topology();
  accept_.assign(t.accept().begin(), t.accept().end());
  if (t.has_node_weights()) first_accept_weight_ = t.first_accept_weight();
  for (int32_t n : accept_) posterior_.push_back(scores_.score(n));
  if (t.has_node_weights()) {
    const std::vector<double> weights = graph.accept_weights();
    for (size_t i = 0; i < weights.size(); ++i) posterior_[i] += weights[i];
  }
  double top = kNegInf;
  for (const double score : posterior_) top = std::max(top, score);
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

std::vector<double> LogPartition::end_tangents(const Buffer<double>& score_tangent,
                                               const Weights& tangent) const {
  std::vector<double> out;
  for (size_t i = 0; i < accept_.size(); ++i)
    out.push_back(
        score_tangent[accept_[i]] +
        (first_accept_weight_ < 0 ? 0.0 : tangent[first_accept_weight_ + static_cast<int64_t>(i)]));
  return out;
}

double LogPartition::mean(std::span<const double> end_tangents) const {
  double mean = 0.0;
  for (size_t i = 0; i < accept_.size(); ++i) mean += posterior_[i] * end_tangents[i];
  return mean;
}

void LogPartition::add_posteriors(double factor, Gradient& grad) const {
  scores_.add_vjp(seed(factor), grad);
  add_to_accept_weights(grad.sum(), [&](size_t i) { return factor * posterior_[i]; });
}

double LogPartition::jvp(const Weights& tangent) const {
  return mean(end_tangents(scores_.jvp(tangent), tangent));
}

void LogPartition::add_hvp(const Weights& tangent, double factor, Weights& grad) const {
  const Buffer<double> score_tangent = scores_.jvp(tangent);
  const std::vector<double> ends = end_tangents(score_tangent, tangent);
  const double centre = mean(ends);
  const auto change = [&](size_t i) { return posterior_[i] * (ends[i] - centre); };
  Buffer<double> seed_tangent(score_tangent.size(), 0.0);
  for (size_t i = 0; i < accept_.size(); ++i) seed_tangent[accept_[i]] = change(i);
  add_to_accept_weights(grad, [&](size_t i) { return factor * change(i); });
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
