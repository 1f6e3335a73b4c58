#pragma once

// What all kernels have in common: the graph factor of a product as they read it, the options of a
// run, and its result. registry.cpp has the list of kernels.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arcgrad/algorithms/scaled.h"
#include "arcgrad/core/weights.h"
#include "arcgrad/runtime/fork_safe_once.h"
#include "arcgrad/trellis/emissions.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// The graph factor of a product with its weights as mantissas and exponents; see isa/simd.h.
struct Factor {
  Factor(const char* op, std::shared_ptr<const TrellisGraph> arranged, Weights graph_weights);

  std::shared_ptr<const TrellisGraph> trellis_graph;
  Weights weights;  // contiguous
  /// exp(weight) = mantissa * 2^exponent for each arc, then for each node weight; a weight of -inf
  /// has mantissa 0. Exponents are integers from -kMaxExponent to kMaxExponent.
  std::span<const double> mantissa, exponent;
  /// Whether every arc has weight 0.
  bool is_unweighted = true;
  /// The score of each state before the first frame, and of ending a path in it after the last.
  std::vector<Scaled> begin, end;
  /// The score of an example without frames.
  Scaled empty;

  /// exp(weight) of an arc or a node weight; 1 for -1.
  Scaled weight(int32_t index) const {
    return index < 0 ? Scaled::one() : Scaled{mantissa[index], exponent[index]};
  }
  /// Calls visit(state, weight) for each start or accept node, if the graph has node weights.
  template <class Visit>
  void for_start_weights(const Visit& visit) const {
    const TrellisGraph& f = *trellis_graph;
    for (size_t k = 0; f.has_node_weights && k < f.start.size(); ++k)
      visit(f.start[k], f.start_weight(k));
  }
  template <class Visit>
  void for_accept_weights(const Visit& visit) const {
    const TrellisGraph& f = *trellis_graph;
    for (size_t k = 0; f.has_node_weights && k < f.accept.size(); ++k)
      visit(f.accept[k], f.accept_weight(k));
  }
  /// Adds `delta` times the posteriors of the node weights of an example without frames.
  void add_empty_posteriors(double delta, std::span<double> weights) const;
  /// Data that the `dense` kernel derives from the factor on first use.
  mutable ForkSafeOnce dense_once;
  mutable std::shared_ptr<void> dense;

 private:
  Buffer<double> own_mantissa_, own_exponent_;
};

/// Weights beyond 2^22 * log(2), about 2.9 million, saturate in the recursions.
inline constexpr double kMaxExponent = 1 << 22;

/// a * b.
inline Scaled product(const Scaled& a, const Scaled& b) {
  return {a.mantissa * b.mantissa, a.is_zero() || b.is_zero() ? 0.0 : a.exponent + b.exponent};
}

/// a / b, which is at most about 1.
inline double quotient(const Scaled& a, const Scaled& b) {
  if (a.is_zero()) return 0.0;
  return a.mantissa / b.mantissa * pow2(std::min(a.exponent - b.exponent, 64.0));
}

/// A sum of scores that may differ by any order of magnitude.
class ScaledSum {
 public:
  void add(double mantissa, double exponent) {
    if (mantissa == 0.0) return;
    if (exponent > sum_.exponent) {
      sum_.mantissa *= pow2(sum_.exponent - exponent);
      sum_.exponent = exponent;
    }
    sum_.mantissa += mantissa * pow2(exponent - sum_.exponent);
  }
  Scaled get() const {
    return sum_.mantissa == 0.0 ? Scaled{} : renormalize(sum_.mantissa, sum_.exponent);
  }

 private:
  Scaled sum_;
};

/// The options of a kernel.
struct RunOptions {
  const char* op = "forward_score";
  /// Whether add_gradients() will be called.
  bool keep = true;
  /// The forward values of every stride-th frame are kept; the backward pass recomputes the others.
  int32_t stride = 1;
};

/// The result of the forward pass over a chunk of examples, with the values that gradients need.
class Run {
 public:
  virtual ~Run() = default;
  /// log of the summed scores of each example; -inf if no path is accepted.
  std::vector<double> scores;
  /// Adds `deltas[i]` times the posteriors of example i to `emissions[i]` and, unless it is empty,
  /// to `arcs`, which has one entry per arc for all examples. An example whose delta is 0 or whose
  /// score is -inf adds nothing.
  virtual void add_gradients(std::span<const double> deltas,
                             std::span<const EmissionsGrad> emissions,
                             std::span<double> arcs) const = 0;
  /// Whether add_gradients() clears uninitialized rows itself, just before it adds to them, so that
  /// they are in the cache. The caller still clears the rows of examples that add nothing.
  virtual bool clears_rows() const { return false; }
  /// For example i, the log of the sum of the posteriors of each frame before normalization.
  virtual std::vector<double> frame_scores(size_t i) const;
};

// Kernels. Each runs a chunk of examples whose graph is `factor`. The result for an example does
// not depend on the others in its chunk.

/// One example, any graph.
std::unique_ptr<Run> run_csr(std::shared_ptr<const Factor> factor,
                             std::span<const Emissions> example, const RunOptions& options);
/// Up to kLanes examples, one per lane of the vectors; any graph.
inline constexpr size_t kLanes = 8;
std::unique_ptr<Run> run_lanes(std::shared_ptr<const Factor> factor,
                               std::span<const Emissions> examples, const RunOptions& options);
/// Whether threads divide the frames of run_csr() or run_lanes().
bool divides_lanes(const TrellisGraph& graph, size_t num_examples);
/// One example; the graph must be banded.
std::unique_ptr<Run> run_diagonal(std::shared_ptr<const Factor> factor,
                                  std::span<const Emissions> example, const RunOptions& options);
/// Up to kDenseRows examples, by matrix products; the graph must be dense. Returns null if the
/// numbers exceed the range of double; then another kernel must run the chunk.
inline constexpr size_t kDenseRows = 16;
std::unique_ptr<Run> run_dense(std::shared_ptr<const Factor> factor,
                               std::span<const Emissions> examples, const RunOptions& options);
/// Whether threads divide the frames of run_dense().
bool divides_dense(const TrellisGraph& graph, size_t num_examples);
/// Computes the data that run_dense() derives from a factor for emissions of a dtype.
void prepare_dense(const Factor& factor, DType emissions);

}  // namespace arcgrad::trellis
