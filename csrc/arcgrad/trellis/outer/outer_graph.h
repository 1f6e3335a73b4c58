#pragma once

// A graph of an outer score, with its weights converted once for all windows of all emissions.

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "arcgrad/algorithms/scaled.h"
#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/fork_safe_once.h"
#include "arcgrad/trellis/kernels/lanes.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// If weights and emissions change a score by fewer factors of 2 than this, scores and gradients
/// stay within the range of a double.
inline constexpr double kPlainBits = 900.0;

/// A graph of an outer score, for recursions of type T: on scaled numbers (mantissa and exponent),
/// and on plain doubles if the weights are small enough.
template <class T>
struct OuterGraph {
  std::shared_ptr<const Factor> factor;
  std::vector<int32_t> label;  // of each emitting state
  /// The weights of in-terms and out-terms, and the scores of states before the first and after the
  /// last frame, as doubles. Empty if they are out of range.
  Buffer<double> plain;
  /// A bound on the factors of 2 by which the weights change a score in a window.
  double bits = kPlainBits;

  /// The weights for recursions on scaled numbers, computed on first use.
  const std::shared_ptr<const RowWeights<T>>& weights() const {
    once_.call([&] { weights_ = std::make_shared<const RowWeights<T>>(*factor); });
    return weights_;
  }

  /// Sets `plain` and `bits` for windows of `frames` frames.
  void make_plain(int32_t frames) {
    const TrellisGraph& graph = *factor->trellis_graph;
    double reach = 0.0;
    for (size_t a = 0; a < factor->exponent.size(); ++a)
      if (factor->mantissa[a] > 0.0) reach = std::max(reach, std::abs(factor->exponent[a]) + 1.0);
    int32_t widest = 1;
    for (const Rows* rows : {&graph.in(), &graph.out})
      for (size_t r = 1; r < rows->offset.size(); ++r)
        widest = std::max(widest, rows->offset[r] - rows->offset[r - 1]);
    const int32_t num_non_emitting = graph.num_values - graph.num_emitting;
    bits = (frames + (frames + 1.0) * num_non_emitting) *
           (reach + static_cast<double>(std::bit_width(static_cast<uint32_t>(widest))));
    if (bits >= kPlainBits) return;
    plain.reserve(
        static_cast<size_t>(graph.in().num_terms() + graph.out.num_terms() + 2 * graph.num_values));
    for (const Rows* rows : {&graph.in(), &graph.out})
      for (int32_t a : rows->arc)
        plain.push_back(a < 0 ? 1.0 : factor->mantissa[a] * pow2(factor->exponent[a]));
    for (const std::vector<Scaled>* ends : {&factor->begin, &factor->end})
      for (const Scaled& score : *ends)
        plain.push_back(score.is_zero() ? 0.0 : score.mantissa * pow2(score.exponent));
  }
  /// The posteriors that TermPosteriors has: of out-terms, then of node weights.
  size_t num_posteriors() const {
    const TrellisGraph& graph = *factor->trellis_graph;
    return graph.out.index.size() + static_cast<size_t>(graph.num_weights - graph.num_arcs());
  }
  const double* in_weights() const { return plain.data(); }
  const double* out_weights() const {
    return in_weights() + factor->trellis_graph->in().num_terms();
  }
  const double* begin() const { return out_weights() + factor->trellis_graph->out.num_terms(); }
  const double* end() const { return begin() + factor->trellis_graph->num_values; }

 private:
  mutable ForkSafeOnce once_;
  mutable std::shared_ptr<const RowWeights<T>> weights_;
};

/// Sums of the posteriors of the out-terms and the node weights of a graph, 8 lanes for each: from
/// scaled recursions, and from plain recursions, which omit the factor exp(weight) of out-terms.
template <class T>
struct TermPosteriors {
  std::vector<T> scaled;
  std::vector<double> plain;
};

}  // namespace arcgrad::trellis
