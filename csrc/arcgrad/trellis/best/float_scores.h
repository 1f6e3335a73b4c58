#pragma once

// The approximate scores of the prefilter, with bounds on their errors. prefilter.cpp uses them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "arcgrad/core/weights.h"
#include "arcgrad/runtime/buffer.h"
#include "arcgrad/trellis/best/prefilter_loops.h"
#include "arcgrad/trellis/kernels/dense_loops.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// The tropical recursion in floats, from the last frame to the first, over some examples.
///
/// Rows are numbered by frames left, so examples of different lengths begin together at their last
/// frames. For each non-emitting state a row has the best score from there to the end; for each
/// emitting state it has this score plus the emission of the frame that enters the state. Scores of
/// a row are relative to a number per example, so that they stay small and keep their digits. The
/// error bound of a row is the bound of the previous row plus the roundings of one step.
class FloatScores {
 public:
  /// Examples come by ascending length.
  FloatScores(const TrellisGraph& graph, const Weights& weights,
              std::span<const Emissions* const> examples);

  /// The most examples that run side by side.
  static constexpr size_t kMost = kDenseRows > kPrefilterLanes ? kDenseRows : kPrefilterLanes;
  static constexpr float kImpossible = -std::numeric_limits<float>::infinity();

  int32_t frames() const { return frames_; }
  int32_t most_terms() const { return most_terms_; }
  int64_t row_size() const {
    return graph_.is_dense ? width_ * static_cast<int64_t>(examples_.size())
                           : int64_t{graph_.num_values} * kPrefilterLanes;
  }

  /// Computes the row with no frame left. Returns false if the scores are useless from here on: an
  /// emission is NaN or +inf, or the error is too large for every example.
  bool begin(float* row);
  /// Computes the row with `left` frames left from the row with one less. Returns as begin().
  bool advance(int32_t left, const float* before, float* row);

  /// A bound on the error of the scores of terms that leave states with `left` frames left.
  double error(int32_t left, size_t i) const {
    const RowBound before = bound(left - 1, i);
    return before.error + step_error(before.size, 0.0, before.total);
  }
  /// Whether the scores of example i are precise enough to drop arcs.
  bool is_useful(size_t i) const;

  /// Finds the terms that leave state v with `left` frames left and may be on a best path of
  /// example i. Reads the row with `left` frames left and the row before; `end` is the score of
  /// ending a path at v. Returns the best score; sets `terms` and `count` only if it is not -inf.
  float find_terms(int32_t v, int32_t left, float end_score, const float* before, const float* row,
                   size_t i, int32_t* terms, int32_t* count);

  /// For a dense graph and `left` > 0: if only one term of emitting state v may be on a best path,
  /// the state it leads to; else -1.
  int32_t find_only(int32_t v, int32_t left, const float* before, size_t i) const {
    return table_.only_sum(width_, matrix_row(v), of_example(before, i), bound(left - 1, i).slack);
  }

  /// For a dense graph: the term between two emitting states.
  int32_t term_between(int32_t from, int32_t to) const {
    const int32_t* index = graph_.out.index.data();
    const int32_t begin = graph_.out.offset[from], middle = graph_.middle[from];
    // Usually term k leads to state k.
    if (begin + to < middle && index[begin + to] == to) return begin + to;
    return static_cast<int32_t>(std::find(index + begin, index + middle, to) - index);
  }

  /// top - slack, rounded down.
  static float lowest(float top, double slack) {
    const double exact = static_cast<double>(top) - slack;
    return static_cast<float>(exact - std::abs(exact) * 0x1p-23);
  }

 private:
  /// Bounds on a row of an example.
  struct RowBound {
    float top = 0.0f;    // the largest score of an emitting state, or 0
    float slack = 0.0f;  // at least twice the error of terms that lead to this row
    double size = 0.0;   // the largest absolute score of an emitting state
    double error = 0.0;  // a bound on the error of the scores
    double total = 0.0;  // the largest absolute exact score
  };

  template <class W>
  void set_weights(std::span<const W> weights);
  /// Computes the scores to the end with no frame left, and the factors of step_error().
  void find_ends(const Weights& weights);
  /// Arranges the arcs between emitting states by source, and by destination in panels.
  void make_matrix();
  /// Adds the emissions that enter the states of a row, and sets its bounds.
  bool enter(int32_t left, float* row);
  /// The emissions of one frame by state: a view of the frame if possible, else a copy.
  const float* read_states(const Emissions& example, int64_t frame);
  /// Reads the emissions that enter a row, by label and example.
  bool read_slots(int32_t left, PrefilterRange* range);

  const float* of_example(const float* row, size_t i) const {
    return row + static_cast<int64_t>(i) * width_;
  }
  const float* matrix_row(int32_t from) const { return &matrix_[from * width_]; }
  PrefilterTerms all_terms() const {
    return {graph_.num_values, graph_.out.offset.data(), graph_.middle.data(),
            graph_.out.index.data(), weights_.data()};
  }
  /// The score of a term of a dense graph, in which a non-emitting state that an arc enters has no
  /// arcs to emitting states.
  float dense_term(int32_t k, int32_t left, const float* before, size_t i) const;

  const RowBound& bound(int32_t left, size_t i) const {
    static constexpr RowBound kNothing = {};
    return left < 0 ? kNothing : bounds_[static_cast<size_t>(left) * kMost + i];
  }

  /// What one step adds to the error, for scores and emissions up to these sizes.
  ///
  /// Let d be the longest path of epsilon arcs, u = 2^-24, and let weights be at most w, scores x
  /// and emissions e. A score takes d + 1 roundings of at most u * ((d + 1) w + x). Adding the
  /// emission takes u * (e + x) and u * ((d + 1) w + 2 x + e). Converting both takes u * ((d + 1) w
  /// + e). The product rounds its arc by at most u * (w + e). The exact scores are sums of doubles.
  double step_error(double size, double emission, double total) const {
    const double more = most_added_ + emission;
    return float_error_ * (more + size) + double_error_ * (more + total);
  }

  const TrellisGraph& graph_;
  std::span<const Emissions* const> examples_;
  const PrefilterTable& table_ = ARCGRAD_LOOPS(prefilter);
  const DenseTable<float>& dense_ = ARCGRAD_LOOPS(dense_float);
  int32_t frames_ = 0;
  std::vector<float> weights_;  // of each term of an out-row
  std::vector<float> ends_;     // of each state: the score to the end with no frame left
  double largest_ = 0.0;        // absolute weight
  // d + 4 roundings of floats, d + 2 of doubles, and d + 1 of the largest weights.
  double float_error_ = 0.0, double_error_ = 0.0, most_added_ = 0.0;
  int32_t most_terms_ = 0;  // of an out-row
  // Of a dense graph: the length of the row of one example, the label of each emitting state, and
  // the arcs.
  int64_t width_ = 0;
  std::vector<int32_t> labels_;
  bool is_consecutive_ = true;
  AlignedBuffer<float> matrix_, panels_, sums_;
  AlignedBuffer<float> emissions_;
  std::vector<float> converted_;
  std::vector<RowBound> bounds_;
};

}  // namespace arcgrad::trellis
