#include "arcgrad/algorithms/log_partition.h"

#include <algorithm>
#include <cmath>

namespace arcgrad {
namespace {

/// Differentiates posteriors * delta with respect to the graph and delta.
class PosteriorsRule final : public Rule {
 public:
  PosteriorsRule(std::shared_ptr<const LogPartition> total, double delta)
      : total_(std::move(total)), delta_(delta) {}

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    if (grads[0]) total_->add_hvp(deltas[0], delta_, *grads[0]);
    if (grads[1]) {
      Weights slope = Weights::scalar(total_->slope(deltas[0]));
      ArcMap::identity().apply(slope, *grads[1], 1.0);
    }
  }

 private:
  std::shared_ptr<const LogPartition> total_;
  double delta_;
};

}  // namespace

LogPartition::LogPartition(const char* op, const Graph& graph, bool keep)
    : sweep_(graph.topology_ptr(), graph.weights(), graph.topology().start(),
             {.op = op, .keep = keep, .targets = graph.topology().accept()}) {
  const auto accept = graph.topology().accept();
  ends_.assign(accept.begin(), accept.end());
  double top = kNegInf;
  for (int32_t n : ends_) top = std::max(top, share_.emplace_back(sweep_.score(n)));
  if (top == kNegInf) {
    std::ranges::fill(share_, 0.0);
    return;
  }
  double sum = 0.0;
  // Scores too large for a number are equal.
  for (double& share : share_) sum += share = share == top ? 1.0 : std::exp(share - top);
  for (double& share : share_) share /= sum;
  value_ = top + std::log(sum);
}

Buffer<double> LogPartition::seed(double factor) const {
  Buffer<double> seed(static_cast<size_t>(sweep_.topology().num_nodes()), 0.0);
  for (size_t i = 0; i < ends_.size(); ++i) seed[ends_[i]] = factor * share_[i];
  return seed;
}

double LogPartition::mean(const Buffer<double>& moved) const {
  double mean = 0.0;
  for (size_t i = 0; i < ends_.size(); ++i) mean += share_[i] * moved[ends_[i]];
  return mean;
}

void LogPartition::add_posteriors(double factor, Weights& grad) const {
  sweep_.pull_back(seed(factor), grad);
}

double LogPartition::slope(const Weights& direction) const {
  return mean(sweep_.push_forward(direction));
}

void LogPartition::add_hvp(const Weights& direction, double factor, Weights& grad) const {
  const Buffer<double> moved = sweep_.push_forward(direction);
  const double centre = mean(moved);
  Buffer<double> seed_moved(moved.size(), 0.0);
  for (size_t i = 0; i < ends_.size(); ++i)
    seed_moved[ends_[i]] = share_[i] * (moved[ends_[i]] - centre);
  sweep_.pull_back_moved(seed(1.0), std::move(seed_moved), direction, moved, factor, grad);
}

Graph record_posteriors(const char* op, const Graph& graph,
                        std::shared_ptr<const LogPartition> total, const Graph& delta,
                        DType dtype) {
  Weights posteriors = Weights::zeros_later(graph.num_arcs(), dtype);
  const double factor = delta.item();
  total->add_posteriors(factor, posteriors);
  posteriors.clear();
  const Graph inputs[] = {graph, delta};
  std::unique_ptr<Rule> rule;
  if (tracks(inputs)) rule = std::make_unique<PosteriorsRule>(std::move(total), factor);
  return record(op, graph.topology_ptr(), std::move(posteriors), inputs, std::move(rule));
}

}  // namespace arcgrad
