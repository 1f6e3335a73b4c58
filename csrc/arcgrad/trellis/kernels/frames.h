#pragma once

// The `frames` kernel: the forward score of emissions alone. In a dense linear graph every label
// may follow every label, so the partition function is a product over frames, and in logarithms
//
//     score = sum over t of z(t),   z(t) = log of the sum over c of exp(e(t, c))
//     gradient: exp(e(t, c) - z(t)), the softmax of each frame
//
// This is the log partition function of a model such as CTC (Graves et al. 2006) whose emissions
// are not normalized by log_softmax. Invariant: a frame is summed relative to a scale near its
// largest entry, so that it neither overflows nor loses digits. The scale of the previous frame is
// the first guess, which saves a pass over the entries. One logarithm serves a product of many
// frame sums. The scale and the sum of each frame are kept for gradients. Cost: one exp per entry
// forward and one backward; both passes are bound by memory bandwidth.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "arcgrad/autograd/rule.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/trellis/emissions.h"
#include "arcgrad/trellis/kernels/frames_loops.h"

namespace arcgrad::trellis {

/// The forward scores of dense linear graphs.
class Frames final : public InitialRows {
 public:
  /// Computes nothing yet; see sum().
  Frames(const char* op, std::vector<Graph> emissions);

  const std::vector<Graph>& emissions() const { return emissions_; }
  /// Computes the score of example i. Throws if an entry is NaN or +inf.
  void sum(size_t i);
  /// The score of example i, after sum(i).
  double score(size_t i) const { return scores_[i]; }

  /// Runs `body(i)` for each example, on the threads of the pool if there is enough to do.
  void for_each(const std::function<void(size_t)>& body) const;

  /// Adds `delta` times the posteriors of example i to some rows of its gradient, or sets them if
  /// they are uninitialized. The score must not be -inf.
  void add_rows(size_t i, double delta, const EmissionsGrad& grad, int64_t first,
                int64_t count) const;
  void set_rows(size_t i, double delta, const EmissionsGrad& grad, int64_t first,
                int64_t count) const override {
    add_rows(i, delta, grad, first, count);
  }
  /// Adds `deltas[i]` times the posteriors of example i to `grads[i]`, unless that is null.
  void add_gradients(std::span<const double> deltas, std::span<Gradient* const> grads) const;
  /// Adds `deltas[i]` times the derivatives of the posteriors along `tangents[i]` to `grads[i]`,
  /// and sets `jvps[i]` to the derivative of the score. A missing tangent is zero.
  void add_hvps(std::span<const double> deltas, std::span<const Weights> tangents,
                std::span<Gradient* const> grads, std::span<double> jvps) const;

 private:
  EmissionsGrads destinations(std::span<Gradient* const> grads) const;
  template <class T>
  void sum_frames(size_t i);
  template <class T>
  [[noreturn]] void fail_bad(const Emissions& view, int32_t t, const T* frame) const;
  template <class T>
  void spread(size_t i, double delta, const EmissionsGrad& grad, int64_t first,
              int64_t count) const;
  template <class T>
  double differentiate(size_t i, double delta, const std::vector<double>& tangent,
                       const EmissionsGrad& grad) const;

  const char* op_;
  std::vector<Graph> emissions_;
  std::vector<Emissions> views_;
  std::vector<std::vector<KeptSum>> sums_;
  std::vector<double> scores_;
};

/// Computes the gradients for which `wanted` holds, as graphs that can be differentiated again.
/// `deltas` has one scalar graph per example, null for no gradient.
std::vector<Graph> record_gradients(const char* op, const std::shared_ptr<const Frames>& frames,
                                    std::span<const Graph> deltas, const std::vector<bool>& wanted);

/// Sets out[i] to the forward score of the dense linear graph graphs[i], for each i of `positions`.
void score_frames(const char* op, const std::vector<Graph>& graphs,
                  std::span<const size_t> positions, std::vector<Graph>& out);

}  // namespace arcgrad::trellis
