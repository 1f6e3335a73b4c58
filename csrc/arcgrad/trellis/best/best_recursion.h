#pragma once

// The recursion of best paths over the frames of some examples.

#include <algorithm>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/trellis/best/best_graph.h"
#include "arcgrad/trellis/kernels/kernel.h"

namespace arcgrad::trellis {

template <class T>
const BestTable<T>& best_table() {
  if constexpr (std::is_same_v<T, float>)
    return ARCGRAD_LOOPS(best_float);
  else
    return ARCGRAD_LOOPS(best_double);
}

/// The recursion over frames, from the last to the first, of up to `lanes` examples side by side.
/// Rows are numbered by frames left, so examples of different lengths begin together at their last
/// frames.
template <class T>
class BestRecursion {
 public:
  BestRecursion(const BestGraph<T>& graph, std::span<const Emissions* const> examples,
                int32_t lanes)
      : graph_(graph), table_(best_table<T>()), examples_(examples), lanes_(lanes) {
    const TrellisGraph& trellis_graph = graph.trellis_graph;
    const bool is_by_state = graph.loop != BestLoop::terms;
    before_ = graph.reach_before;
    num_emissions_ = is_by_state ? before_ + graph.padded + graph.reach_after
                                 : static_cast<int64_t>(trellis_graph.labels.size()) * lanes;
    // Initializes the entries that are never written: padding, and labels that the emissions lack.
    emissions_ = AlignedBuffer<T>(num_emissions_);
    std::fill_n(emissions_.get(), num_emissions_,
                is_by_state ? T{0} : -std::numeric_limits<T>::infinity());
    if (is_by_state) {
      // The offset in a frame of the emission of each state. Padding reads any valid emission.
      const Emissions& only = *examples[0];
      const int64_t any =
          trellis_graph.labels.empty() ? 0 : trellis_graph.labels[0] * only.col_stride;
      from_.assign(static_cast<size_t>(graph.padded), any);
      for (int32_t p = 0; p < trellis_graph.num_emitting; ++p) {
        const int32_t label = graph.label[p];
        if (label < only.labels)
          from_[p] = label * only.col_stride;
        else
          missing_.push_back(p);
      }
    }
    if (graph.loop == BestLoop::diagonals) {
      checks_frames_ = examples[0]->col_stride == 1 && examples[0]->labels <= 4 * graph.padded;
      scratch_ = AlignedBuffer<double>(num_emissions_);
      std::fill_n(scratch_.get(), num_emissions_, kNegInf);
      find_ends();
      diagonals_ = graph.diagonals;
      diagonals_.scratch = scratch_.get() + before_;
      constexpr int32_t kNear[] = {0, 1, 2};
      is_near_ =
          graph.is_plain && diagonals_.num_full == 2 &&
          std::equal(kNear, kNear + 3, diagonals_.offset, diagonals_.offset + diagonals_.count);
      if (graph.is_plain && !missing_.empty()) {
        in_order_.resize(from_.size());
        std::iota(in_order_.begin(), in_order_.end(), 0);
      }
    } else if (graph.loop == BestLoop::terms) {
      if (graph.is_plain)
        scratch_ = AlignedBuffer<double>(static_cast<int64_t>(trellis_graph.num_emitting) * lanes);
      terms_ = graph.terms;
      terms_.scratch = scratch_.get();
      const bool is_one = lanes == 1, is_four = lanes == 4;
      advance_terms_ = graph.is_plain ? (is_one    ? table_.plain_terms1
                                         : is_four ? table_.plain_terms4
                                                   : table_.plain_terms8)
                                      : (is_one    ? table_.terms1
                                         : is_four ? table_.terms4
                                                   : table_.terms8);
    }
  }

  int64_t row_size() const { return static_cast<int64_t>(graph_.row_size) * lanes_; }
  /// Whether an emission read so far was NaN or +inf.
  bool has_bad() const { return has_bad_; }
  double score(const double* row, int32_t state, size_t lane) const {
    return row[static_cast<int64_t>(graph_.position(state)) * lanes_ + static_cast<int64_t>(lane)];
  }

  /// Computes the row with no frame left.
  void begin(double* row) const {
    const TrellisGraph& trellis_graph = graph_.trellis_graph;
    std::fill_n(row, row_size(), kNegInf);
    for (int32_t v = trellis_graph.num_values; v-- > 0;) {
      double best = graph_.end[v];
      for (int32_t k = trellis_graph.out.offset[v]; k < trellis_graph.out.offset[v + 1]; ++k) {
        if (trellis_graph.out.index[k] < trellis_graph.num_emitting) continue;
        const double s =
            graph_.weight(trellis_graph.out.arc[k]) + score(row, trellis_graph.out.index[k], 0);
        if (s > best) best = s;
      }
      std::fill_n(row + static_cast<int64_t>(graph_.position(v)) * lanes_, lanes_, best);
    }
  }

  /// Computes the row with `left` frames left from the row with one less.
  void advance(int32_t left, const double* before, double* row) {
    const T* emissions = emissions_.get() + before_;
    if (graph_.loop == BestLoop::terms) {
      for (size_t i = 0; i < examples_.size(); ++i) read_slots(left, i);
      has_bad_ |= advance_terms_(terms_, before, emissions, row);
      return;
    }
    if (graph_.loop == BestLoop::matrix) {
      read_states(left);
      has_bad_ |= table_.matrix(graph_.matrix, before, emissions, row);
    } else {
      find_range(left);
      const bool is_direct = graph_.is_plain && missing_.empty();
      // The non-emitting states of the last row are starts; their arcs need emissions, too.
      if (!is_direct || left == examples_[0]->frames) read_states(left);
      has_bad_ |= graph_.is_plain
                      ? step_plain(left, before, row)
                      : table_.diagonals[diagonals_.count](diagonals_, before, emissions, row);
    }
    finish_non_emitting(left, before, row);
  }

 private:
  /// Sets the range of emitting states that can lie on an accepted path with `left` frames left.
  void find_range(int32_t left) {
    const TrellisGraph& trellis_graph = graph_.trellis_graph;
    BestDiagonals<T>& d = diagonals_;
    d.begin = d.to_begin = 0;
    d.end = d.to_end = d.padded;
    const int64_t done = examples_[0]->frames - left;
    if (done == 0) return;  // start states need not be emitting
    const int64_t least = trellis_graph.offsets.front(), most = trellis_graph.offsets.back();
    const int64_t low = std::max(first_.low + (done - 1) * least, last_.low - left * most);
    const int64_t high = std::min(first_.high + (done - 1) * most, last_.high - left * least);
    static_assert((kBestBlock & (kBestBlock - 1)) == 0);
    const auto block_of = [&](int64_t state) {
      return static_cast<int32_t>(std::clamp<int64_t>(state, 0, d.padded)) & -kBestBlock;
    };
    d.begin = block_of(low);
    d.end = std::max(block_of(high + kBestBlock - 1), d.begin);
    if (!checks_frames_) return;
    d.to_begin = block_of(d.begin + least);
    d.to_end = std::max(block_of(d.end + most + kBestBlock - 1), d.to_begin);
  }

  bool step_plain(int32_t left, const double* before, double* row) {
    const int32_t full = diagonals_.num_full, others = diagonals_.count - full;
    const auto choose = [&](const auto& loops) {
      return is_near_ && loops.near ? loops.near : loops.of[full][others];
    };
    if (!missing_.empty())
      return choose(plain_loops())(diagonals_, before, emissions_.get() + before_, in_order_.data(),
                                   row);
    const Emissions& example = *examples_[0];
    const int64_t at = (example.frames - left) * example.row_stride;
    const auto step = [&](const auto* frame, const auto& loops, auto is_bad) {
      return choose(loops)(diagonals_, before, frame, from_.data(), row) ||
             (is_narrow() && is_bad(frame, example.labels));
    };
    if (example.dtype == DType::float32)
      return step(static_cast<const float*>(example.data) + at, table_.plain_float,
                  table_.is_bad_float);
    return step(static_cast<const double*>(example.data) + at, table_.plain_double,
                table_.is_bad_double);
  }
  /// The loops that read emissions from a copy of type T.
  const auto& plain_loops() const {
    if constexpr (std::is_same_v<T, float>)
      return table_.plain_float;
    else
      return table_.plain_double;
  }
  /// Whether the loops skip the emissions of some states.
  bool is_narrow() const {
    return graph_.loop == BestLoop::diagonals &&
           diagonals_.to_end - diagonals_.to_begin < graph_.padded;
  }

  /// Finds the range of the states that a path can enter first, and of those in which it can end.
  void find_ends() {
    const TrellisGraph& trellis_graph = graph_.trellis_graph;
    const auto include = [](EndRange& range, int32_t p) {
      range.low = std::min<int64_t>(range.low, p);
      range.high = std::max<int64_t>(range.high, p + 1);
    };
    first_ = last_ = {trellis_graph.num_emitting, 0};
    for (int32_t v : trellis_graph.start)
      for (int32_t k = trellis_graph.out.offset[v]; k < trellis_graph.out.offset[v + 1]; ++k)
        if (trellis_graph.out.index[k] < trellis_graph.num_emitting)
          include(first_, trellis_graph.out.index[k]);
    for (int32_t p = 0; p < trellis_graph.num_emitting; ++p)
      if (graph_.end[p] > kNegInf || trellis_graph.middle[p] < trellis_graph.out.offset[p + 1])
        include(last_, p);
  }

  /// In banded and dense graphs a non-emitting state leads to an emitting state only if it is a
  /// start that no arc enters. So non-emitting states matter in the first and the last row only.
  void finish_non_emitting(int32_t left, const double* before, double* row) const {
    const TrellisGraph& trellis_graph = graph_.trellis_graph;
    if (left < examples_[0]->frames) {
      std::fill(row + graph_.padded, row + graph_.row_size, kNegInf);
      return;
    }
    const T* emissions = emissions_.get() + before_;
    for (int32_t v = trellis_graph.num_values; v-- > trellis_graph.num_emitting;) {
      double best = kNegInf;
      for (int32_t k = trellis_graph.out.offset[v]; k < trellis_graph.out.offset[v + 1]; ++k) {
        const int32_t to = trellis_graph.out.index[k];
        const T weight = graph_.weight(trellis_graph.out.arc[k]);
        const double s = to < trellis_graph.num_emitting
                             ? static_cast<T>(weight + emissions[to]) + before[to]
                             : weight + row[graph_.position(to)];
        if (s > best) best = s;
      }
      row[graph_.position(v)] = best;
    }
  }

  void read_states(int32_t left) {
    const Emissions& example = *examples_[0];
    T* to = emissions_.get() + before_;
    const int32_t begin = is_narrow() ? diagonals_.to_begin : 0;
    const int32_t end = is_narrow() ? diagonals_.to_end : graph_.padded;
    if (missing_.size() < static_cast<size_t>(graph_.trellis_graph.num_emitting)) {
      const int64_t at = (example.frames - left) * example.row_stride;
      const auto read_as = [&](const auto* frame, auto read, auto is_bad) {
        read(frame, from_.data(), begin, end, to);
        if (is_narrow()) has_bad_ |= is_bad(frame, example.labels);
      };
      if (example.dtype == DType::float32)
        read_as(static_cast<const float*>(example.data) + at, table_.read_float,
                table_.is_bad_float);
      else
        read_as(static_cast<const double*>(example.data) + at, table_.read_double,
                table_.is_bad_double);
    }
    for (int32_t p : missing_) to[p] = -std::numeric_limits<T>::infinity();
  }

  void read_slots(int32_t left, size_t lane) {
    const Emissions& example = *examples_[lane];
    if (left > example.frames + 1) return;
    const std::vector<int32_t>& labels = graph_.trellis_graph.labels;
    T* to = emissions_.get() + lane;
    if (left == example.frames + 1) {
      for (size_t k = 0; k < labels.size(); ++k, to += lanes_)
        *to = -std::numeric_limits<T>::infinity();
      return;
    }
    dispatch(example.dtype, [&](auto type) {
      const auto* frame = static_cast<const decltype(type)*>(example.data) +
                          (example.frames - left) * example.row_stride;
      for (size_t k = 0; k < labels.size() && labels[k] < example.labels; ++k, to += lanes_)
        *to = static_cast<T>(frame[labels[k] * example.col_stride]);
    });
  }

  const BestGraph<T>& graph_;
  const BestTable<T>& table_;
  std::span<const Emissions* const> examples_;
  const int32_t lanes_;
  int32_t before_ = 0;  // entries before the first emitting state
  int64_t num_emissions_ = 0;
  AlignedBuffer<T> emissions_;
  AlignedBuffer<double> scratch_;
  std::vector<int64_t> from_;
  std::vector<int32_t> missing_;
  std::vector<int64_t> in_order_;
  bool has_bad_ = false;
  /// Whether to check all labels of a frame for NaN. Otherwise the loops read the emissions of all
  /// states.
  bool checks_frames_ = false;
  bool is_near_ = false;  // the diagonals are 0, 1 and, with gaps, 2
  BestDiagonals<T> diagonals_ = {};
  struct EndRange {
    int64_t low, high;
  };
  EndRange first_{}, last_{};
  BestTerms<T> terms_ = {};
  BestAdvance<BestTerms<T>, T> advance_terms_ = nullptr;
};

}  // namespace arcgrad::trellis
