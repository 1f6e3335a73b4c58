#pragma once

// The forward score over the arcs of a graph, with first and second derivatives.

#include <memory>
#include <vector>

#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// The log partition function of a graph, log sum over accepted paths of exp(score), with its
/// derivatives: the gradient is the posterior of each arc.
class LogPartition {
 public:
  /// `keep` stores what the derivatives need.
  LogPartition(const char* op, const Graph& graph, bool keep);

  double value() const { return value_; }
  /// Adds `factor` times the posterior of each arc to `grad`.
  void add_posteriors(double factor, Gradient& grad) const;
  /// The derivative of the value along `tangent`.
  double jvp(const Weights& tangent) const;
  /// Adds `factor` times the Hessian of the value times `tangent` to `grad`.
  void add_hvp(const Weights& tangent, double factor, Weights& grad) const;

 private:
  Buffer<double> seed(double factor) const;
  /// The tangent of the scores of the paths that end at each accept node, and its mean.
  std::vector<double> end_tangents(const Buffer<double>& score_tangent,
                                   const Weights& tangent) const;
  double mean(std::span<const double> end_tangents) const;

  /// Adds value(i) to the gradient of the i-th accept weight, if there are any.
  template <class Value>
  void add_to_accept_weights(Weights& grad, const Value& value) const {
    if (first_accept_weight_ < 0) return;
    dispatch(grad.dtype(), [&](auto kind) {
      const auto out =
          grad.fill<decltype(kind)>().subspan(static_cast<size_t>(first_accept_weight_));
      for (size_t i = 0; i < accept_.size(); ++i) out[i] += static_cast<decltype(kind)>(value(i));
    });
  }

  PathScores scores_;
  std::vector<int32_t> accept_;
  int32_t first_accept_weight_ = -1;  // the index of the weight of the first; -1 for no weights
  std::vector<double> posterior_;     // of ending at each accept node
  double value_ = kNegInf;
};

/// Records the posteriors of `graph` times the scalar `delta`; `partition` belongs to `graph`.
Graph record_posteriors(const char* op, const Graph& graph,
                        std::shared_ptr<const LogPartition> partition, const Graph& delta,
                        DType dtype);

/// Records the forward score of `graph`; `partition` belongs to it, and keeps what derivatives need
/// if the graph is tracked.
Graph record_log_partition(const char* op, const Graph& graph,
                           std::shared_ptr<const LogPartition> partition);
/// The forward score computed over the arcs of the graph; a product is materialized first.
Graph forward_score_of_arcs(const char* op, const Graph& graph);

}  // namespace arcgrad
