// The backward pass of the `diagonal` kernel: posteriors of emissions and arcs.

#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/stream_copy.h"
#include "arcgrad/trellis/kernels/diagonal.h"

namespace arcgrad::trellis::diagonal {
namespace {

/// The number of frames over which arc gradients are summed in T.
constexpr int32_t kSumFrames = 32;
/// Uninitialized gradient rows are cleared in blocks of up to this many entries.
constexpr int64_t kEntriesAtOnce = 2048;
/// The least row length for streaming stores: at both ends of a row, a cache line is written only
/// in part.
constexpr int32_t kLongRow = 256;

}  // namespace

/// The posteriors of arcs between emitting states. They are summed over a few frames in T, and over
/// all frames in double.
template <class T>
struct DiagonalRun<T>::BandedArcSums {
  BandedArcSums() = default;
  BandedArcSums(int64_t num_emitting, int32_t kind)
      : states(num_emitting),
        size((kind == 2 ? 6 : kind + 2) * num_emitting),
        part(size, T(0)),
        sum(size, 0.0) {
    for (int64_t k = 0; k * states < size; ++k)
      part_of[static_cast<size_t>(k)] = part.get() + k * states;
  }
  void count() {
    if (++frames == kSumFrames) flush();
  }
  void flush() {
    for (int64_t i = 0; i < size; ++i) {
      sum.get()[i] += static_cast<double>(part.get()[i]);
      part.get()[i] = T(0);
    }
    frames = 0;
  }
  double total(int32_t p, int32_t diagonal) const { return sum.get()[diagonal * states + p]; }

  int64_t states = 0, size = 0;
  int32_t frames = 0;
  AlignedBuffer<T> part;
  AlignedBuffer<double> sum;
  std::array<T*, kMostDiagonals> part_of{};
};

template <class T>
void DiagonalRun<T>::add_gradients(std::span<const double> deltas,
                                   std::span<const EmissionsGrad> emissions,
                                   std::span<double> arcs) const {
  if (total_.is_zero() || deltas[0] == 0.0) return;
  const EmissionsGrad wanted = emissions.empty() ? EmissionsGrad{} : emissions[0];
  if (frames_ > 0) return run_backward(deltas[0], wanted, arcs, nullptr);
  if (arcs.empty()) return;
  add_end_arcs(factor_->begin, total_, deltas[0], arcs);
  factor_->add_empty_posteriors(deltas[0], arcs);
}

template <class T>
std::vector<double> DiagonalRun<T>::frame_scores(size_t) const {
  std::vector<double> out(static_cast<size_t>(frames_), -std::numeric_limits<double>::infinity());
  if (frames_ > 0 && !total_.is_zero()) run_backward(0.0, {}, {}, out.data());
  return out;
}

/// The forward scores of all states after the last frame, from those of the emitting states.
template <class T>
std::vector<Scaled> DiagonalRun<T>::scores_at_end(Row last) const {
  const StateRange w = range(frames_);
  std::vector<Scaled> value(static_cast<size_t>(trellis_graph_.num_values));
  for (int32_t p = w.low; p < std::min(w.high, num_states_); ++p)
    if (last.mantissa[p] > T(0)) value[p] = score(last, p, base(frames_));
  std::vector<ScaledSum> into(static_cast<size_t>(trellis_graph_.num_values - num_states_));
  for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
    if (v >= num_states_) value[v] = into[v - num_states_].get();
    for (int32_t k = trellis_graph_.middle[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
      const Scaled term = product(value[v], factor_->weight(trellis_graph_.out.arc[k]));
      into[trellis_graph_.out.index[k] - num_states_].add(term.mantissa, term.exponent);
    }
  }
  return value;
}

template <class T>
void DiagonalRun<T>::run_backward(double delta, const EmissionsGrad& wanted, std::span<double> arcs,
                                  double* frame_scores) const {
  const int64_t after = std::max(high_offset_, 0), before = std::max(-low_offset_, 0);
  const RowStore<T> two(2, before, padded_states_, after);
  const AlignedBuffer<T> posterior(padded_states_, T(0));
  DiagonalSegment segment;
  if (stride_ > 1) {
    const int64_t count = std::min(stride_, frames_);
    segment.rows = make_rows(count);
    segment.emissions = AlignedBuffer<Split<T>>(count * padded_slots_);
    segment.buffer = AlignedBuffer<T>(padded_slots_);
    segment.first = frames_ + 1;
  }
  BandedArcSums sums;
  if (!arcs.empty()) sums = BandedArcSums(padded_states_, kind_);
  const SlotStates slots{live_slots_, num_single_, slot_offset_.data(), slot_state_.data(),
                         slot_label_.data()};

  // The scores of ending a path are the row of frame T + 1.
  Row now = two.row((frames_ + 1) % 2);
  int64_t end_base = 0;
  {
    double top = -std::numeric_limits<double>::infinity();
    for (int32_t p = last_.low; p < last_.high; ++p) top = std::max(top, factor_->end[p].exponent);
    end_base = static_cast<int64_t>(top);
    const StateRange w = range(frames_);
    set_zero(now, w.low, w.high);
    for (int32_t p = std::max(w.low, last_.low); p < std::min(w.high, last_.high); ++p)
      set(now, p, factor_->end[p], end_base);
  }

  // Uninitialized rows of the gradient are set in blocks that fit the L1 cache. Long rows of large
  // gradients are built in a buffer and written by streaming stores.
  int64_t num_unset = frames_;
  int64_t rows_at_once = std::max<int64_t>(kEntriesAtOnce / std::max(wanted.labels, 1), 1);
  EmissionsGrad rows = wanted;
  AlignedBuffer<double> buffer;
  const bool is_streamed = wanted.is_unset && wanted.is_large && wanted.labels >= kLongRow;
  if (is_streamed) {
    buffer = AlignedBuffer<double>(wanted.labels);
    rows.data = buffer.get();
    rows.row_stride = 0;
    rows_at_once = 1;
  }
  for (int32_t t = frames_; t >= 1; --t) {
    if (t % kBaseFrames == 0) poll_interrupt();
    if (stride_ > 1 && t < segment.first) recompute(segment, t);
    const Row next = now;
    now = two.row(t % 2);
    const StateRange w = range(t);
    const auto step = t == frames_ ? loops_.backward_last : loops_.backward.of[kind_][is_weighted_];
    const double sum = step(diagonals_, next, row(segment, t), emissions(segment, t),
                            scale(base(t) + end_base), w.low, w.high, now, posterior.get());
    // The sum is 0 only where scores underflowed that are far below the others.
    const double inverse_sum = sum > 0.0 ? 1.0 / sum : 0.0;
    if (frame_scores != nullptr) frame_scores[t - 1] = std::log(sum) + log({1.0, total_.exponent});
    if (rows.is_unset && t <= num_unset) {
      const int64_t count = std::min(num_unset, rows_at_once);
      num_unset -= count;
      rows.clear(num_unset, count);
    }
    if (rows.data != nullptr && inverse_sum > 0.0) {
      if (rows.dtype == DType::float32)
        loops_.scatter_f32(slots, posterior.get(), delta * inverse_sum,
                           static_cast<float*>(rows.data), rows.row_stride, t - 1);
      else
        loops_.scatter_f64(slots, posterior.get(), delta * inverse_sum,
                           static_cast<double*>(rows.data), rows.row_stride, t - 1);
    }
    if (is_streamed)
      dispatch(wanted.dtype, [&](auto kind) {
        using G = decltype(kind);
        stream(rows.data, wanted.row<G>(t - 1), static_cast<size_t>(wanted.labels) * sizeof(G));
      });
    if (t == frames_ && !arcs.empty() && sum > 0.0) {
      const std::vector<Scaled> value = scores_at_end(row(segment, t));
      const Scaled total{sum, total_.exponent};
      add_end_arcs(value, total, delta, arcs);
      factor_->for_accept_weights([&](int32_t v, int32_t w) {
        arcs[w] += delta * quotient(product(value[v], factor_->weight(w)), total);
      });
    }
    if (t % kBaseFrames == 0) end_base += loops_.rebase(now, w.low, w.high);
    if (!arcs.empty() && inverse_sum > 0.0) {
      if (t == 1) {
        add_first_arcs(now, end_base, {sum, total_.exponent}, delta, arcs);
      } else {
        loops_.add_arcs.of[kind_][is_weighted_](
            diagonals_, row(segment, t - 1), now, scale(base(t - 1) + end_base),
            static_cast<T>(inverse_sum), w.low, w.high, sums.part_of.data());
        sums.count();
      }
    }
    if (t > 1) {
      const StateRange previous = range(t - 1);
      set_zero(now, std::min(previous.low + low_offset_, w.low), w.low);
      set_zero(now, w.high, std::max(previous.high + high_offset_, w.high));
      // Posteriors are 0 outside the range.
      std::fill(posterior.get() + w.low, posterior.get() + std::max(previous.low, w.low), T(0));
      std::fill(posterior.get() + std::min(previous.high, w.high), posterior.get() + w.high, T(0));
    }
  }
  if (is_streamed) finish_stream();
  if (!arcs.empty()) {
    sums.flush();
    for (int32_t from = 0; from < num_states_; ++from)
      for (int32_t k = trellis_graph_.out.offset[from]; k < trellis_graph_.middle[from]; ++k) {
        const int32_t p = trellis_graph_.out.index[k];
        arcs[trellis_graph_.out.arc[k]] += delta * sums.total(p, diagonal_of(p - from));
      }
  }
}

/// Adds the posteriors of the epsilon arcs after the last frame. `value` has the forward scores
/// there. No epsilon arc is used before the first frame: a non-emitting state that an arc enters
/// does not lead to emitting states in a banded graph.
template <class T>
void DiagonalRun<T>::add_end_arcs(const std::vector<Scaled>& value, const Scaled& sum, double delta,
                                  std::span<double> arcs) const {
  for (int32_t v = 0; v < trellis_graph_.num_values; ++v)
    for (int32_t k = trellis_graph_.middle[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
      const int32_t arc = trellis_graph_.out.arc[k];
      if (arc < 0) continue;
      const Scaled path = product(product(value[v], factor_->weight(arc)),
                                  factor_->end[trellis_graph_.out.index[k]]);
      arcs[arc] += delta * quotient(path, sum);
    }
}

/// Adds the posteriors of the arcs of the first frame and of start weights.
template <class T>
void DiagonalRun<T>::add_first_arcs(Row now, int64_t end_base, const Scaled& sum, double delta,
                                    std::span<double> arcs) const {
  const StateRange w = range(1);
  std::vector<double> posterior(
      static_cast<size_t>(trellis_graph_.num_values));  // of starting here
  for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
    const Scaled& begin = factor_->begin[v];
    if (begin.is_zero()) continue;
    for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
      const int32_t p = trellis_graph_.out.index[k], arc = trellis_graph_.out.arc[k];
      if (p < w.low || p >= std::min(w.high, num_states_) || now.mantissa[p] == T(0)) continue;
      const Scaled path = product(product(begin, factor_->weight(arc)), score(now, p, end_base));
      const double of_arc = delta * quotient(path, sum);
      arcs[arc] += of_arc;
      posterior[v] += of_arc;
    }
  }
  factor_->for_start_weights([&](int32_t v, int32_t index) { arcs[index] += posterior[v]; });
}

#define ARCGRAD_INSTANTIATE(T)                                                           \
  template void DiagonalRun<T>::add_gradients(                                           \
      std::span<const double>, std::span<const EmissionsGrad>, std::span<double>) const; \
  template std::vector<double> DiagonalRun<T>::frame_scores(size_t) const;
ARCGRAD_INSTANTIATE(float)
ARCGRAD_INSTANTIATE(double)
#undef ARCGRAD_INSTANTIATE

}  // namespace arcgrad::trellis::diagonal
