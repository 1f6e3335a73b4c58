#pragma once

#include <memory>
#include <vector>

#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/autograd/tape.h"

namespace arcgrad {

/// The log-sum of the scores of all accepted paths of a graph, with its derivatives.
class LogPartition {
 public:
  /// `keep` says whether derivatives will be asked for.
  LogPartition(const char* op, const Graph& graph, bool keep);

  double value() const { return value_; }
  /// Adds `factor` times the posterior of each arc to `grad`.
  void add_posteriors(double factor, Weights& grad) const;
  /// The derivative of the value when the weights move along `direction`.
  double slope(const Weights& direction) const;
  /// Adds `factor` times the derivative of the posteriors along `direction` to `grad`.
  void add_hvp(const Weights& direction, double factor, Weights& grad) const;

 private:
  Buffer<double> seed(double factor) const;
  double mean(const Buffer<double>& moved) const;

  PathScores sweep_;
  std::vector<int32_t> ends_;
  std::vector<double> share_;  // of each accept node in the total
  double value_ = kNegInf;
};

/// The posteriors of `graph` times the scalar `delta`, on the tape; `total` belongs to `graph`.
Graph record_posteriors(const char* op, const Graph& graph,
                        std::shared_ptr<const LogPartition> total, const Graph& delta, DType dtype);

}  // namespace arcgrad
