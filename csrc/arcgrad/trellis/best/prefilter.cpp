#include "arcgrad/trellis/best/prefilter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory_resource>

#include "arcgrad/trellis/best/prefilter_loops.h"
#include "arcgrad/trellis/best/segments.h"
#include "arcgrad/trellis/kernels/dense_loops.h"

// With e the emissions of a frame, S[v] the exact score from value v to the end and X[p] = S[p] +
// e[label of p], the recursion in floats finds B[v] and X[p] up to a constant per frame and an
// error of at most `error`. An arc on a best path from v has the largest exact score of all, so in
// floats it is at most twice the error below the largest. Arcs that are not are dropped; from the
// starts on, few are left. Scored exactly from the end, they have the exact scores, since all arcs
// that attain one are among them.

namespace arcgrad::trellis {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
/// With a larger error nearly every arc would have to be followed.
constexpr double kMostError = 1.0;

template <class W>
float to_float(W weight) {
  if constexpr (sizeof(W) == 4) return weight;
  // Finite numbers stay finite; their size makes the error too large.
  constexpr W kMost = 3e38;
  return static_cast<float>(
      weight == -std::numeric_limits<W>::infinity() ? weight : (weight < -kMost ? -kMost : weight));
}

int64_t padded(int64_t count) { return (count + kDensePad - 1) / kDensePad * kDensePad; }

/// The recursion in floats over some examples.
class FloatScores {
 public:
  FloatScores(const TrellisGraph& form, const Weights& weights,
              std::span<const Emissions* const> examples)
      : trellis_graph_(form), examples_(examples) {
    for (const Emissions* example : examples) frames_ = std::max(frames_, example->frames);
    dispatch(weights.dtype(), [&](auto type) { set_weights(weights.view<decltype(type)>()); });
    find_ends();
    if (form.is_dense) {
      width_ = padded(form.num_emitting);
      for (int32_t p = 0; p < form.num_emitting; ++p) {
        labels_.push_back(form.labels[form.slot[p]]);
        is_consecutive_ &= labels_[p] == labels_[0] + p;
      }
      make_matrix();
      emissions_ = Block<float>(width_);
      sums_ = Block<float>(width_);
    } else {
      const auto size = static_cast<int64_t>(form.labels.size()) * kPrefilterLanes;
      emissions_ = Block<float>(size);
    }
    states_.resize((static_cast<size_t>(frames_) + 1) * kMost);
  }

  /// The most examples that run together.
  static constexpr size_t kMost = kDenseRows > kPrefilterLanes ? kDenseRows : kPrefilterLanes;

  int32_t frames() const { return frames_; }
  int32_t most_terms() const { return most_terms_; }
  int64_t row_size() const {
    return trellis_graph_.is_dense ? width_ * static_cast<int64_t>(examples_.size())
                                   : int64_t{trellis_graph_.num_values} * kPrefilterLanes;
  }

  /// The row with no frame left; false if it is of no use to go on.
  bool begin(float* row) {
    if (trellis_graph_.is_dense) {
      for (size_t i = 0; i < examples_.size(); ++i) {
        float* to = row + static_cast<int64_t>(i) * width_;
        std::fill(std::copy_n(ends_.data(), trellis_graph_.num_emitting, to), to + width_,
                  kImpossible);
      }
    } else {
      for (int32_t v = 0; v < trellis_graph_.num_values; ++v)
        std::fill_n(row + int64_t{v} * kPrefilterLanes, kPrefilterLanes, ends_[v]);
    }
    return enter(0, row);
  }

  /// The row with `left` frames left, from the one with a frame less.
  bool advance(int32_t left, const float* before, float* row) {
    if (trellis_graph_.is_dense) {
      int64_t rows = 0;
      for (const Emissions* example : examples_) rows += example->frames > left ? 1 : 0;
      const auto skipped = static_cast<int64_t>(examples_.size()) - rows;
      if (rows > 0)
        dense_.multiply_max(rows, before + skipped * width_, width_, trellis_graph_.num_emitting,
                            panels_.get(), width_ / kPanel<float>, row + skipped * width_);
    } else {
      steps_.terms(all_terms(), before, row);
    }
    return enter(left, row);
  }

  /// How far the scores of terms that leave values with `left` frames left may be off.
  double error(int32_t left, size_t i) const {
    const State before = state(left - 1, i);
    return before.error + step_error(before.size, 0.0, before.total);
  }
  bool is_useful(size_t i) const { return error(examples_[i]->frames, i) <= kMostError; }

  /// Finds the terms that leave a value with `left` frames left and may be on a best path of
  /// example i, given that row and the one before, or acceptance if that `can_end` it. The best
  /// score; `terms` and `count` are only set if it is possible.
  float find_terms(int32_t v, int32_t left, bool can_end, const float* before, const float* row,
                   size_t i, int32_t* terms, int32_t* count) {
    const int32_t begin = trellis_graph_.out.offset[v], middle = trellis_graph_.middle[v],
                  end = trellis_graph_.out.offset[v + 1];
    const double slack = 2.0 * error(left, i);
    float best = can_end ? 0.0f : kImpossible;
    if (trellis_graph_.is_dense && v < trellis_graph_.num_emitting && left > 0) {
      best = steps_.best_sum(width_, matrix_row(v), of_example(before, i), sums_.get());
      if (best == kImpossible) return best;
      *count = steps_.find_sums(width_, sums_.get(), lowest(best, slack), terms);
      for (int32_t* to = terms; to < terms + *count; ++to) *to = term_between(v, *to);
    } else if (trellis_graph_.is_dense) {
      for (int32_t k = begin; k < end; ++k) best = std::max(best, dense_term(k, left, before, i));
      if (best == kImpossible) return best;
      *count = 0;
      for (int32_t k = begin; k < end; ++k)
        if (dense_term(k, left, before, i) >= lowest(best, slack)) terms[(*count)++] = k;
    } else {
      const ScreenTerms all = all_terms();
      const auto lane = static_cast<int64_t>(i);
      if (v >= trellis_graph_.num_emitting) {
        best = std::max(best, row[int64_t{v} * kPrefilterLanes + lane]);
      } else {
        best = std::max(best, steps_.best_term(all, middle, end, row + lane));
        if (left > 0) best = std::max(best, steps_.best_term(all, begin, middle, before + lane));
      }
      if (best == kImpossible) return best;
      const float least = lowest(best, slack);
      *count = left > 0 ? steps_.find_terms(all, begin, middle, before + lane, least, terms) : 0;
      *count += steps_.find_terms(all, middle, end, row + lane, least, terms + *count);
    }
    return best;
  }

  /// The place that the only term leads to that leaves place v with `left` > 0 frames left and may
  /// be on a best path of example i; -1 if it is not the only one. In a dense form.
  int32_t find_only(int32_t v, int32_t left, const float* before, size_t i) const {
    return steps_.only_sum(width_, matrix_row(v), of_example(before, i), state(left - 1, i).slack);
  }

  /// The term that leads from one place to another in a dense form, where there is only one.
  int32_t term_between(int32_t from, int32_t to) const {
    const int32_t* index = trellis_graph_.out.index.data();
    const int32_t begin = trellis_graph_.out.offset[from], middle = trellis_graph_.middle[from];
    // Most often the terms lead to all places in order.
    if (begin + to < middle && index[begin + to] == to) return begin + to;
    return static_cast<int32_t>(std::find(index + begin, index + middle, to) - index);
  }

  /// A number that is not above top - slack, but hardly below it.
  static float lowest(float top, double slack) {
    const double exact = static_cast<double>(top) - slack;
    return static_cast<float>(exact - std::abs(exact) * 0x1p-23);
  }

 private:
  /// What is known of a row of an example.
  struct State {
    float top = 0.0f;    // the largest score of a place, or 0
    float slack = 0.0f;  // at least twice the error of terms that lead here
    double size = 0.0;   // no score of a place is larger
    double error = 0.0;  // how far they may be off
    double total = 0.0;  // no exact score is larger
  };

  template <class W>
  void set_weights(std::span<const W> weights) {
    for (const W w : weights) {
      const auto size = static_cast<double>(std::abs(w));
      if (size < std::numeric_limits<double>::infinity()) largest_ = std::max(largest_, size);
    }
    const Rows& out = trellis_graph_.out;
    weights_.resize(out.arc.size());
    for (size_t k = 0; k < out.arc.size(); ++k)
      weights_[k] = out.arc[k] < 0 ? 0.0f : to_float(weights[static_cast<size_t>(out.arc[k])]);
  }

  /// The scores to the end with no frame left, and what rounding may add up to.
  void find_ends() {
    const auto num_values = static_cast<size_t>(trellis_graph_.num_values);
    const Rows& out = trellis_graph_.out;
    std::vector<double> ends(num_values, kNegInf);
    std::vector<int32_t> depth(num_values);
    int32_t deepest = 0;
    for (int32_t v : trellis_graph_.accept) ends[v] = 0.0;
    for (int32_t v = trellis_graph_.num_values; v-- > 0;) {
      for (int32_t k = trellis_graph_.middle[v]; k < out.offset[v + 1]; ++k) {
        const int32_t to = out.index[k];
        ends[v] = std::max(ends[v], static_cast<double>(weights_[k]) + ends[to]);
        depth[v] = std::max(depth[v], depth[to] + 1);
      }
      deepest = std::max(deepest, depth[v]);
      most_terms_ = std::max(most_terms_, out.offset[v + 1] - out.offset[v]);
    }
    ends_.assign(ends.begin(), ends.end());
    constexpr double kUnit = 1.01 * 0x1p-24, kDouble = 1.01 * 0x1p-53;
    float_error_ = (deepest + 4) * kUnit;
    double_error_ = (deepest + 2) * kDouble;
    most_added_ = (deepest + 1) * largest_;
  }

  /// The arcs between places by source, and by destination in panels.
  void make_matrix() {
    const int64_t count = trellis_graph_.num_emitting;
    const Rows& out = trellis_graph_.out;
    matrix_ = Block<float>(width_ * width_, kImpossible);
    for (int64_t from = 0; from < count; ++from)
      for (int32_t k = out.offset[from]; k < trellis_graph_.middle[from]; ++k)
        matrix_[from * width_ + out.index[k]] = weights_[k];
    panels_ = Block<float>(width_ * count);
    constexpr int64_t kColumns = kPanel<float>;
    for (int64_t first = 0; first < width_; first += kColumns)
      for (int64_t to = 0; to < count; ++to)
        for (int64_t c = 0; c < kColumns; ++c)
          panels_[first * count + to * kColumns + c] = matrix_[(first + c) * width_ + to];
  }

  const float* of_example(const float* row, size_t i) const {
    return row + static_cast<int64_t>(i) * width_;
  }
  const float* matrix_row(int32_t from) const { return &matrix_[from * width_]; }
  ScreenTerms all_terms() const {
    return {trellis_graph_.num_values, trellis_graph_.out.offset.data(),
            trellis_graph_.middle.data(), trellis_graph_.out.index.data(), weights_.data()};
  }

  /// The score of a term in a dense form, where no frame is consumed behind a sum that something
  /// leads to.
  float dense_term(int32_t k, int32_t left, const float* before, size_t i) const {
    const int32_t to = trellis_graph_.out.index[k];
    if (to < trellis_graph_.num_emitting)
      return left > 0 ? weights_[k] + of_example(before, i)[to] : kImpossible;
    return left == 0 ? weights_[k] + ends_[to] : kImpossible;
  }

  const State& state(int32_t left, size_t i) const {
    static constexpr State kNothing = {};
    return left < 0 ? kNothing : states_[static_cast<size_t>(left) * kMost + i];
  }

  /// What one frame adds to the error, with scores and emissions up to these sizes.
  ///
  /// With d sums in a row, u = 2^-24, all weights up to w, scores up to x and emissions up to e, it
  /// takes d + 1 roundings of at most u * ((d + 1) w + x) to find a score, u * (e + x) and u * ((d
  /// + 1) w + 2 x + e) to add the emission, and u * ((d + 1) w + e) to convert both. The product
  /// rounds its arc by at most u * (w + e), and the exact scores are sums of doubles.
  double step_error(double size, double emission, double total) const {
    const double more = most_added_ + emission;
    return float_error_ * (more + size) + double_error_ * (more + total);
  }

  /// Adds the emissions with which places are entered, and notes what the row is like.
  bool enter(int32_t left, float* row) {
    std::array<ScreenRange, kMost> range;
    bool is_bad = false;
    if (trellis_graph_.is_dense) {
      for (size_t i = 0; i < examples_.size(); ++i) {
        if (examples_[i]->frames <= left) continue;
        const float* emissions = read_places(*examples_[i], examples_[i]->frames - left - 1);
        is_bad |=
            steps_.enter_row(trellis_graph_.num_emitting, width_, emissions, state(left - 1, i).top,
                             row + static_cast<int64_t>(i) * width_, &range[i]);
      }
    } else {
      is_bad = read_slots(left, range.data());
      steps_.enter(trellis_graph_.num_emitting, trellis_graph_.slot.data(), emissions_.get(), row,
                   range.data());
    }
    if (is_bad) return false;
    bool is_useful = false;
    for (size_t i = 0; i < examples_.size(); ++i) {
      if (examples_[i]->frames <= left) continue;
      const State& before = state(left - 1, i);
      State& now = states_[static_cast<size_t>(left) * kMost + i];
      const auto& [top, low, most] = range[i];
      now.top = top == kImpossible ? 0.0f : top;
      now.size = top == kImpossible ? 0.0 : static_cast<double>(std::max(top, -low));
      const auto emission = static_cast<double>(most);
      now.error = before.error + step_error(before.size, emission, before.total);
      now.total = before.total + most_added_ + emission;
      constexpr double kAbove = 1.0 + 1e-6;  // for the rounding to float
      now.slack =
          static_cast<float>(2.0 * kAbove * (now.error + step_error(now.size, 0.0, now.total)));
      is_useful |= now.error <= kMostError;
    }
    return is_useful || left >= frames_;
  }

  /// The emissions of one frame by place: those in place, or a copy.
  const float* read_places(const Emissions& example, int64_t frame) {
    float* to = emissions_.get();
    const int32_t count = trellis_graph_.num_emitting;
    if (is_consecutive_ && example.col_stride == 1 && example.dtype == DType::float32 &&
        labels_[0] + count <= example.labels)
      return static_cast<const float*>(example.data) + frame * example.row_stride + labels_[0];
    dispatch(example.dtype, [&](auto type) {
      const auto* from =
          static_cast<const decltype(type)*>(example.data) + frame * example.row_stride;
      const int32_t first = labels_[0], known = std::clamp(example.labels - first, 0, count);
      if (is_consecutive_ && example.col_stride == 1) {
        for (int32_t p = 0; p < known; ++p) to[p] = to_float(from[first + p]);
        std::fill(to + known, to + count, kImpossible);
      } else {
        for (int32_t p = 0; p < count; ++p)
          to[p] = labels_[p] < example.labels ? to_float(from[labels_[p] * example.col_stride])
                                              : kImpossible;
      }
    });
    return to;
  }

  /// The emissions that lead to a row, by label and example.
  bool read_slots(int32_t left, ScreenRange* range) {
    const float* row[kPrefilterLanes] = {};
    int64_t stride[kPrefilterLanes];
    int32_t count[kPrefilterLanes];
    float base[kPrefilterLanes];
    const std::vector<int32_t>& labels = trellis_graph_.labels;
    size_t used = 0;
    for (int l = 0; l < kPrefilterLanes; ++l) {
      const auto i = static_cast<size_t>(l);
      stride[l] = 1;
      count[l] = 0;
      base[l] = 0.0f;
      if (i >= examples_.size() || examples_[i]->frames <= left) continue;
      const Emissions& example = *examples_[i];
      base[l] = state(left - 1, i).top;
      count[l] =
          static_cast<int32_t>(std::ranges::lower_bound(labels, example.labels) - labels.begin());
      const int64_t at = (example.frames - left - 1) * example.row_stride;
      if (example.dtype == DType::float32) {
        row[l] = static_cast<const float*>(example.data) + at;
        stride[l] = example.col_stride;
      } else {
        // The labels may be sparse, so the copy has the width of the emissions.
        converted_.resize(std::max(converted_.size(), kPrefilterLanes * size_t(example.labels)));
      }
    }
    for (int l = 0; l < kPrefilterLanes; ++l) {
      if (count[l] == 0 || row[l]) continue;
      const Emissions& example = *examples_[static_cast<size_t>(l)];
      const auto* from = static_cast<const double*>(example.data) +
                         (example.frames - left - 1) * example.row_stride;
      float* to = converted_.data() + used;
      used += static_cast<size_t>(example.labels);
      for (int32_t s = 0; s < count[l]; ++s)
        to[labels[s]] = to_float(from[labels[s] * example.col_stride]);
      row[l] = to;
    }
    return steps_.read(static_cast<int32_t>(labels.size()), labels.data(), row, stride, count, base,
                       emissions_.get(), range);
  }

  const TrellisGraph& trellis_graph_;
  std::span<const Emissions* const> examples_;
  const PrefilterTable& steps_ = ARCGRAD_LOOPS(screen);
  const DenseTable<float>& dense_ = ARCGRAD_LOOPS(dense_float);
  int32_t frames_ = 0;
  std::vector<float> weights_;  // of each term of an out-row
  std::vector<float> ends_;     // of each value: the score to the end with no frame left
  double largest_ = 0.0;        // weight by size
  // With d sums that may follow each other, d + 4 and d + 2 roundings, and d + 1 weights.
  double float_error_ = 0.0, double_error_ = 0.0, most_added_ = 0.0;
  int32_t most_terms_ = 0;  // of an out-row
  // Of a dense form: numbers per example in a row, the label of each place, and the arcs.
  int64_t width_ = 0;
  std::vector<int32_t> labels_;
  bool is_consecutive_ = true;
  Block<float> matrix_, panels_, sums_;
  Block<float> emissions_;
  std::vector<float> converted_;
  std::vector<State> states_;
};

/// Follows the arcs of one example that may be on its best path.
template <class T>
class Tracer {
 public:
  Tracer(const TrellisGraph& form, std::span<const T> weights,
         const std::vector<uint8_t>& is_accept, FloatScores& scores, const Emissions& example,
         size_t i, std::pmr::memory_resource* pool)
      : trellis_graph_(form),
        weights_(weights),
        is_accept_(is_accept),
        scores_(scores),
        example_(example),
        i_(i),
        most_visited_(example.frames * (int64_t{form.out.num_terms()} / 4 + 64) +
                      form.out.num_terms()),
        candidates_(pool),
        links_(pool),
        starts_(pool),
        order_(pool),
        at_(static_cast<size_t>(form.num_values), kNone, pool),
        near_(static_cast<size_t>(scores.most_terms()), pool),
        trail_(pool),
        places_(pool),
        next_places_(pool),
        sums_(pool) {
    has_failed_ = !scores.is_useful(i);
    const auto usual = static_cast<size_t>(example.frames) * 3 / 2;
    candidates_.reserve(form.is_dense ? usual / 4 : usual);
    links_.reserve(candidates_.capacity());
    order_.reserve(candidates_.capacity());
    if (form.is_dense) trail_.resize(static_cast<size_t>(example.frames));
  }

  bool has_failed() const { return has_failed_; }

  /// Goes on by a frame, from values with `left` frames left; `before` is the row with one less.
  void follow(int32_t left, const float* before, const float* row) {
    if (has_failed_ || left > example_.frames) return;
    if (trail_value_ >= 0) {
      const int32_t to = left > 0 ? scores_.find_only(trail_value_, left, before, i_) : kNone;
      if (to >= 0) {
        trail_[static_cast<size_t>(left) - 1] = trail_value_ = to;
        return;
      }
      end_trail(left);
    }
    left_ = left;
    before_ = before;
    row_ = row;
    places_.swap(next_places_);
    next_places_.clear();
    if (left == example_.frames) add_starts();
    for (size_t k = 0; k < places_.size() && !has_failed_; ++k) expand(places_[k]);
    while (!sums_.empty() && !has_failed_) {
      std::ranges::pop_heap(sums_, std::greater<>());
      const int32_t c = at_[sums_.back()];
      sums_.pop_back();
      expand(c);
    }
    if (trellis_graph_.is_dense && next_places_.size() == 1) begin_trail();
  }

  /// Scores the arcs that are left, and finds the path.
  void finish(BestAlignment& out) {
    for (auto c = order_.rbegin(); c != order_.rend(); ++c) {
      Candidate& candidate = candidates_[*c];
      if (candidate.trail_end >= 0) {
        double& score = candidate.score = candidates_[candidate.trail_end].score;
        for_trail(candidate, true,
                  [&](int32_t term, int32_t left) { score += weight(left, term); });
        continue;
      }
      double best = candidate.left == 0 && is_accept_[candidate.value] ? 0.0 : kNegInf;
      for (int32_t l = candidate.first; l < candidate.end; ++l) {
        const double s = weight(candidate.left, links_[l].term) + candidates_[links_[l].to].score;
        if (s > best) best = s;
      }
      candidate.score = best;
    }
    BestStart start;
    for (int32_t c : starts_) {
      const Candidate& from = candidates_[c];
      start.offer(from.score, c, from.left == 0 && is_accept_[from.value]);
    }
    out.score = start.score();
    if (start.value() < 0) return;
    out.start = trellis_graph_.node[candidates_[start.value()].value];
    out.steps.reserve(static_cast<size_t>(example_.frames));
    for (int32_t c = start.value();;) {
      const Candidate& candidate = candidates_[c];
      if (candidate.left == 0 && is_accept_[candidate.value] && candidate.score == 0.0) return;
      if (candidate.trail_end >= 0) {
        for_trail(candidate, false, [&](int32_t term, int32_t left) { add_step(out, term, left); });
        c = candidate.trail_end;
        continue;
      }
      FirstArc first;
      const bool is_only = candidate.end == candidate.first + 1;
      for (int32_t l = candidate.first; l < candidate.end; ++l) {
        const auto& [term, to] = links_[l];
        if (!is_only && weight(candidate.left, term) + candidates_[to].score != candidate.score)
          continue;
        const int32_t value = trellis_graph_.out.index[term];
        first.offer(l, value < trellis_graph_.num_emitting ? trellis_graph_.slot[value] : -1,
                    trellis_graph_.out.arc[term]);
      }
      if (first.term() < 0) return;  // cannot be: the score is that of one of the arcs
      const Link& link = links_[first.term()];
      if (first.arc() >= 0 && first.takes_frame())
        add_step(out, link.term, candidate.left);
      else if (first.arc() >= 0)
        out.steps.push_back({first.arc(), -1, kEpsilon});
      c = link.to;
    }
  }

 private:
  static constexpr int32_t kNone = -1;
  /// A value with so many frames left that may be on a best path, and the links that go on, or the
  /// candidate where the trail from here ends.
  struct Candidate {
    int32_t value, left;
    int32_t first = 0, end = 0, trail_end = kNone;
    double score = kNegInf;
  };
  struct Link {
    int32_t term, to;  // of an out-row, and a candidate
  };

  /// As long as there is only one candidate, and only one way to go on, no more than the places
  /// need to be kept.
  void begin_trail() {
    trail_begin_ = next_places_[0];
    trail_value_ = candidates_[trail_begin_].value;
    next_places_.clear();
  }
  void end_trail(int32_t left) {
    int32_t c = trail_begin_;
    if (candidates_[c].left > left) {
      order_.push_back(c);
      c = static_cast<int32_t>(candidates_.size());
      candidates_[trail_begin_].trail_end = c;
      candidates_.push_back({trail_value_, left});
    }
    at_[trail_value_] = c;
    next_places_.push_back(c);
    trail_value_ = kNone;
  }
  /// Calls f(term, frames left) for the steps of a trail, from its end or from its beginning.
  template <class Each>
  void for_trail(const Candidate& begin, bool is_backwards, const Each& f) const {
    const Candidate& end = candidates_[begin.trail_end];
    const auto value_at = [&](int32_t left) {
      return left == begin.left ? begin.value : trail_[static_cast<size_t>(left)];
    };
    const auto visit = [&](int32_t left) {
      f(scores_.term_between(value_at(left), value_at(left - 1)), left);
    };
    if (is_backwards)
      for (int32_t left = end.left + 1; left <= begin.left; ++left) visit(left);
    else
      for (int32_t left = begin.left; left > end.left; --left) visit(left);
  }
  void add_step(BestAlignment& out, int32_t term, int32_t left) const {
    out.steps.push_back(
        {trellis_graph_.out.arc[term], example_.frames - left,
         trellis_graph_.labels[trellis_graph_.slot[trellis_graph_.out.index[term]]]});
  }

  void add_starts() {
    float best = kImpossible;
    for (int32_t v : trellis_graph_.start) best = std::max(best, find_terms(v));
    if (best == kImpossible) return;
    const float lowest = FloatScores::lowest(best, 2.0 * scores_.error(left_, i_));
    for (int32_t v : trellis_graph_.start)
      if (find_terms(v) >= lowest) starts_.push_back(add(v, left_));
    // Those that are places are expanded now.
    places_.swap(next_places_);
    next_places_.clear();
  }

  /// Finds the terms of a value in this row that may be on a best path, and its score.
  float find_terms(int32_t v) {
    return scores_.find_terms(v, left_, left_ == 0 && is_accept_[v], before_, row_, i_,
                              near_.data(), &num_near_);
  }

  int32_t add(int32_t value, int32_t left) {
    int32_t& at = at_[value];
    if (at >= 0 && candidates_[at].left == left) return at;
    at = static_cast<int32_t>(candidates_.size());
    candidates_.push_back({value, left});
    if (value < trellis_graph_.num_emitting) {
      next_places_.push_back(at);
    } else {
      sums_.push_back(value);
      std::ranges::push_heap(sums_, std::greater<>());
    }
    return at;
  }

  void expand(int32_t c) {
    const int32_t v = candidates_[c].value;
    const int32_t begin = trellis_graph_.out.offset[v], end = trellis_graph_.out.offset[v + 1];
    order_.push_back(c);
    visited_ += end - begin;
    if (visited_ > most_visited_) {
      has_failed_ = true;
      return;
    }
    if (find_terms(v) == kImpossible) return;
    candidates_[c].first = static_cast<int32_t>(links_.size());
    for (int32_t n = 0; n < num_near_; ++n) {
      const int32_t to = trellis_graph_.out.index[near_[n]];
      links_.push_back({near_[n], add(to, to < trellis_graph_.num_emitting ? left_ - 1 : left_)});
    }
    candidates_[c].end = static_cast<int32_t>(links_.size());
  }

  /// The weight of an arc of the product that leaves with `left` frames left, as that has it.
  T weight(int32_t left, int32_t term) const {
    const int32_t to = trellis_graph_.out.index[term], arc = trellis_graph_.out.arc[term];
    const T own = arc < 0 ? T{0} : weights_[static_cast<size_t>(arc)];
    if (to >= trellis_graph_.num_emitting) return own;
    const int64_t at = (example_.frames - left) * example_.row_stride +
                       trellis_graph_.labels[trellis_graph_.slot[to]] * example_.col_stride;
    return own + dispatch(example_.dtype, [&](auto type) {
             return static_cast<T>(static_cast<const decltype(type)*>(example_.data)[at]);
           });
  }

  const TrellisGraph& trellis_graph_;
  std::span<const T> weights_;
  const std::vector<uint8_t>& is_accept_;
  FloatScores& scores_;
  const Emissions& example_;
  const size_t i_;
  int32_t left_ = 0;
  bool has_failed_;
  int64_t visited_ = 0, most_visited_;
  std::pmr::vector<Candidate> candidates_;
  std::pmr::vector<Link> links_;
  /// Candidates; `order_` has all, those before others first.
  std::pmr::vector<int32_t> starts_, order_;
  std::pmr::vector<int32_t> at_;    // the last candidate of each value
  std::pmr::vector<int32_t> near_;  // terms
  int32_t num_near_ = 0;
  /// Where the trail that is followed began, where it is, and the places by frames left.
  int32_t trail_begin_ = 0, trail_value_ = kNone;
  std::pmr::vector<int32_t> trail_;
  // Of this row: candidates that are places, values that are sums, by which the next comes first.
  std::pmr::vector<int32_t> places_, next_places_, sums_;
  const float *before_ = nullptr, *row_ = nullptr;
};

}  // namespace

size_t most_screened(const TrellisGraph& form) {
  return form.is_dense ? kDenseRows : kPrefilterLanes;
}

template <class T>
std::vector<bool> screen_best(const TrellisGraph& form, const Weights& weights,
                              std::span<const Emissions* const> examples,
                              std::span<BestAlignment* const> out, int64_t max_bytes) {
  FloatScores scores(form, weights, examples);
  const int64_t row_size = std::max<int64_t>(scores.row_size(), 1);
  const int32_t stride = segment_stride(scores.frames(), 4 * row_size, max_bytes);
  Segments<float> rows(scores.frames(), row_size, stride, true);
  const auto advance = [&](int32_t left, const float* before, float* row) {
    return scores.advance(left, before, row);
  };
  std::vector<bool> found(examples.size(), false);
  if (!scores.begin(rows.row(0)) || !rows.make(advance)) return found;

  std::vector<uint8_t> is_accept(static_cast<size_t>(form.num_values));
  for (int32_t v : form.accept) is_accept[v] = 1;
  std::pmr::monotonic_buffer_resource pool;
  std::vector<Tracer<T>> tracers;
  tracers.reserve(examples.size());
  for (size_t i = 0; i < examples.size(); ++i)
    tracers.emplace_back(form, weights.view<T>(), is_accept, scores, *examples[i], i, &pool);
  int32_t left = scores.frames();
  do {
    // Examples take turns, since each has to wait for what it finds.
    for (; left > rows.begin(); --left)
      for (Tracer<T>& tracer : tracers) tracer.follow(left, rows.row(left - 1), rows.row(left));
  } while (rows.go_back(advance));
  for (Tracer<T>& tracer : tracers) tracer.follow(0, nullptr, rows.row(0));
  for (size_t i = 0; i < examples.size(); ++i) {
    found[i] = !tracers[i].has_failed();
    if (found[i]) tracers[i].finish(*out[i]);
  }
  return found;
}

template std::vector<bool> screen_best<float>(const TrellisGraph&, const Weights&,
                                              std::span<const Emissions* const>,
                                              std::span<BestAlignment* const>, int64_t);
template std::vector<bool> screen_best<double>(const TrellisGraph&, const Weights&,
                                               std::span<const Emissions* const>,
                                               std::span<BestAlignment* const>, int64_t);

}  // namespace arcgrad::trellis
