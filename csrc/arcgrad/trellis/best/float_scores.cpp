// The first pass of the prefilter: rows of float scores, and the terms near the best.

#include "arcgrad/trellis/best/float_scores.h"

#include <algorithm>
#include <array>
#include <limits>

#include "arcgrad/core/semiring.h"
#include "arcgrad/trellis/best/alignment.h"

namespace arcgrad::trellis {
namespace {

/// With a larger error, nearly all arcs would be within the error of the best.
constexpr double kMostError = 1.0;

/// Finite numbers stay finite. If one is clamped, it is so large that the error bound is exceeded.
template <class W>
float to_float(W weight) {
  if constexpr (sizeof(W) == 4) return weight;
  constexpr W kMost = 3e38;
  return static_cast<float>(
      weight == -std::numeric_limits<W>::infinity() ? weight : (weight < -kMost ? -kMost : weight));
}

int64_t padded(int64_t count) { return (count + kDensePad - 1) / kDensePad * kDensePad; }

}  // namespace

FloatScores::FloatScores(const TrellisGraph& graph, const Weights& weights,
                         std::span<const Emissions* const> examples)
    : graph_(graph), examples_(examples) {
  for (const Emissions* example : examples) frames_ = std::max(frames_, example->frames);
  dispatch(weights.dtype(), [&](auto type) { set_weights(weights.view<decltype(type)>()); });
  find_ends(weights);
  if (graph.is_dense) {
    width_ = padded(graph.num_emitting);
    for (int32_t p = 0; p < graph.num_emitting; ++p) {
      labels_.push_back(graph.labels[graph.slot[p]]);
      is_consecutive_ &= labels_[p] == labels_[0] + p;
    }
    make_matrix();
    emissions_ = AlignedBuffer<float>(width_);
    sums_ = AlignedBuffer<float>(width_);
  } else {
    const auto size = static_cast<int64_t>(graph.labels.size()) * kPrefilterLanes;
    emissions_ = AlignedBuffer<float>(size);
  }
  bounds_.resize((static_cast<size_t>(frames_) + 1) * kMost);
}

template <class W>
void FloatScores::set_weights(std::span<const W> weights) {
  for (const W w : weights) {
    const auto size = static_cast<double>(std::abs(w));
    if (size < std::numeric_limits<double>::infinity()) largest_ = std::max(largest_, size);
  }
  const Rows& out = graph_.out;
  weights_.resize(out.arc.size());
  for (size_t k = 0; k < out.arc.size(); ++k)
    weights_[k] = out.arc[k] < 0 ? 0.0f : to_float(weights[static_cast<size_t>(out.arc[k])]);
}

void FloatScores::find_ends(const Weights& weights) {
  const auto num_values = static_cast<size_t>(graph_.num_values);
  const Rows& out = graph_.out;
  std::vector<double> ends = dispatch(weights.dtype(), [&](auto type) {
    return end_scores(graph_, weights.view<decltype(type)>());
  });
  for (double& end : ends) end = static_cast<double>(to_float(end));
  // Node weights are rounded as epsilon arcs are.
  const int32_t least_depth = graph_.has_node_weights ? 1 : 0;
  std::vector<int32_t> depth(num_values, least_depth);
  int32_t deepest = 2 * least_depth;
  for (int32_t v = graph_.num_values; v-- > 0;) {
    for (int32_t k = graph_.middle[v]; k < out.offset[v + 1]; ++k) {
      const int32_t to = out.index[k];
      ends[v] = std::max(ends[v], static_cast<double>(weights_[k]) + ends[to]);
      depth[v] = std::max(depth[v], depth[to] + 1);
    }
    deepest = std::max(deepest, depth[v] + least_depth);
    most_terms_ = std::max(most_terms_, out.offset[v + 1] - out.offset[v]);
  }
  ends_.assign(ends.begin(), ends.end());
  constexpr double kUnit = 1.01 * 0x1p-24, kDouble = 1.01 * 0x1p-53;
  float_error_ = (deepest + 4) * kUnit;
  double_error_ = (deepest + 2) * kDouble;
  most_added_ = (deepest + 1) * largest_;
}

void FloatScores::make_matrix() {
  const int64_t count = graph_.num_emitting;
  const Rows& out = graph_.out;
  matrix_ = AlignedBuffer<float>(width_ * width_, kImpossible);
  for (int64_t from = 0; from < count; ++from)
    for (int32_t k = out.offset[from]; k < graph_.middle[from]; ++k)
      matrix_[from * width_ + out.index[k]] = weights_[k];
  panels_ = AlignedBuffer<float>(width_ * count);
  constexpr int64_t kColumns = kPanel<float>;
  for (int64_t first = 0; first < width_; first += kColumns)
    for (int64_t to = 0; to < count; ++to)
      for (int64_t c = 0; c < kColumns; ++c)
        panels_[first * count + to * kColumns + c] = matrix_[(first + c) * width_ + to];
}

bool FloatScores::is_useful(size_t i) const { return error(examples_[i]->frames, i) <= kMostError; }

bool FloatScores::begin(float* row) {
  if (graph_.is_dense) {
    for (size_t i = 0; i < examples_.size(); ++i) {
      float* to = row + static_cast<int64_t>(i) * width_;
      std::fill(std::copy_n(ends_.data(), graph_.num_emitting, to), to + width_, kImpossible);
    }
  } else {
    for (int32_t v = 0; v < graph_.num_values; ++v)
      std::fill_n(row + int64_t{v} * kPrefilterLanes, kPrefilterLanes, ends_[v]);
  }
  return enter(0, row);
}

bool FloatScores::advance(int32_t left, const float* before, float* row) {
  if (graph_.is_dense) {
    int64_t rows = 0;
    for (const Emissions* example : examples_) rows += example->frames > left ? 1 : 0;
    const auto skipped = static_cast<int64_t>(examples_.size()) - rows;
    if (rows > 0)
      dense_.multiply_max(rows, before + skipped * width_, width_, graph_.num_emitting,
                          panels_.get(), width_ / kPanel<float>, row + skipped * width_);
  } else {
    table_.terms(all_terms(), before, row);
  }
  return enter(left, row);
}

float FloatScores::find_terms(int32_t v, int32_t left, float end_score, const float* before,
                              const float* row, size_t i, int32_t* terms, int32_t* count) {
  const int32_t begin = graph_.out.offset[v], middle = graph_.middle[v],
                end = graph_.out.offset[v + 1];
  const double slack = 2.0 * error(left, i);
  float best = end_score;
  if (graph_.is_dense && v < graph_.num_emitting && left > 0) {
    best = table_.best_sum(width_, matrix_row(v), of_example(before, i), sums_.get());
    if (best == kImpossible) return best;
    *count = table_.find_sums(width_, sums_.get(), lowest(best, slack), terms);
    for (int32_t* to = terms; to < terms + *count; ++to) *to = term_between(v, *to);
  } else if (graph_.is_dense) {
    for (int32_t k = begin; k < end; ++k) best = std::max(best, dense_term(k, left, before, i));
    if (best == kImpossible) return best;
    *count = 0;
    for (int32_t k = begin; k < end; ++k)
      if (dense_term(k, left, before, i) >= lowest(best, slack)) terms[(*count)++] = k;
  } else {
    const PrefilterTerms all = all_terms();
    const auto lane = static_cast<int64_t>(i);
    if (v >= graph_.num_emitting) {
      best = std::max(best, row[int64_t{v} * kPrefilterLanes + lane]);
    } else {
      best = std::max(best, table_.best_term(all, middle, end, row + lane));
      if (left > 0) best = std::max(best, table_.best_term(all, begin, middle, before + lane));
    }
    if (best == kImpossible) return best;
    const float least = lowest(best, slack);
    *count = left > 0 ? table_.find_terms(all, begin, middle, before + lane, least, terms) : 0;
    *count += table_.find_terms(all, middle, end, row + lane, least, terms + *count);
  }
  return best;
}

float FloatScores::dense_term(int32_t k, int32_t left, const float* before, size_t i) const {
  const int32_t to = graph_.out.index[k];
  if (to < graph_.num_emitting)
    return left > 0 ? weights_[k] + of_example(before, i)[to] : kImpossible;
  return left == 0 ? weights_[k] + ends_[to] : kImpossible;
}

bool FloatScores::enter(int32_t left, float* row) {
  std::array<PrefilterRange, kMost> range;
  bool is_bad = false;
  if (graph_.is_dense) {
    for (size_t i = 0; i < examples_.size(); ++i) {
      if (examples_[i]->frames <= left) continue;
      const float* emissions = read_states(*examples_[i], examples_[i]->frames - left - 1);
      is_bad |= table_.enter_row(graph_.num_emitting, width_, emissions, bound(left - 1, i).top,
                                 row + static_cast<int64_t>(i) * width_, &range[i]);
    }
  } else {
    is_bad = read_slots(left, range.data());
    table_.enter(graph_.num_emitting, graph_.slot.data(), emissions_.get(), row, range.data());
  }
  if (is_bad) return false;
  bool is_useful = false;
  for (size_t i = 0; i < examples_.size(); ++i) {
    if (examples_[i]->frames <= left) continue;
    const RowBound& before = bound(left - 1, i);
    RowBound& now = bounds_[static_cast<size_t>(left) * kMost + i];
    const auto& [top, low, most] = range[i];
    now.top = top == kImpossible ? 0.0f : top;
    now.size = top == kImpossible ? 0.0 : static_cast<double>(std::max(top, -low));
    const auto emission = static_cast<double>(most);
    now.error = before.error + step_error(before.size, emission, before.total);
    now.total = before.total + most_added_ + emission;
    constexpr double kAbove = 1.0 + 1e-6;  // the float is rounded
    now.slack =
        static_cast<float>(2.0 * kAbove * (now.error + step_error(now.size, 0.0, now.total)));
    is_useful |= now.error <= kMostError;
  }
  return is_useful || left >= frames_;
}

const float* FloatScores::read_states(const Emissions& example, int64_t frame) {
  float* to = emissions_.get();
  const int32_t count = graph_.num_emitting;
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

bool FloatScores::read_slots(int32_t left, PrefilterRange* range) {
  const float* row[kPrefilterLanes] = {};
  int64_t stride[kPrefilterLanes];
  int32_t count[kPrefilterLanes];
  float base[kPrefilterLanes];
  const std::vector<int32_t>& labels = graph_.labels;
  size_t used = 0;
  for (int l = 0; l < kPrefilterLanes; ++l) {
    const auto i = static_cast<size_t>(l);
    stride[l] = 1;
    count[l] = 0;
    base[l] = 0.0f;
    if (i >= examples_.size() || examples_[i]->frames <= left) continue;
    const Emissions& example = *examples_[i];
    base[l] = bound(left - 1, i).top;
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
    const auto* from =
        static_cast<const double*>(example.data) + (example.frames - left - 1) * example.row_stride;
    float* to = converted_.data() + used;
    used += static_cast<size_t>(example.labels);
    for (int32_t s = 0; s < count[l]; ++s)
      to[labels[s]] = to_float(from[labels[s] * example.col_stride]);
    row[l] = to;
  }
  return table_.read(static_cast<int32_t>(labels.size()), labels.data(), row, stride, count, base,
                     emissions_.get(), range);
}

}  // namespace arcgrad::trellis
