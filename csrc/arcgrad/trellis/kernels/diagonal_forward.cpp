// The forward pass of the `diagonal` kernel.

#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/kernels/diagonal.h"

namespace arcgrad::trellis::diagonal {
namespace {

/// Emissions are converted for this many frames at a time, so that their cache misses overlap.
constexpr int32_t kSplitFrames = 64;

}  // namespace

template <class T>
bool DiagonalRun<T>::find_ranges() {
  if (first_.is_empty() || last_.is_empty()) return false;
  ranges_.resize(static_cast<size_t>(frames_));
  // The states that the start reaches in frame t, and those that reach the end from there.
  int64_t low_ahead = first_.low, high_ahead = first_.high;
  const int64_t after = frames_ - 1;
  int64_t low_back = last_.low - after * high_offset_, high_back = last_.high - after * low_offset_;
  for (StateRange& range : ranges_) {
    const int64_t low = std::max({low_ahead, low_back, int64_t{0}});
    const int64_t high = std::min({high_ahead, high_back, int64_t{num_states_}});
    if (low >= high) return false;
    range = {static_cast<int32_t>(low / kStateBlock * kStateBlock),
             static_cast<int32_t>(round_up(high))};
    low_ahead += low_offset_;
    high_ahead += high_offset_;
    low_back += high_offset_;
    high_back += low_offset_;
  }
  return true;
}

/// Converts the emissions of `count` frames from frame t, counted from 1, to mantissas and
/// exponents.
template <class T>
void DiagonalRun<T>::split(int32_t t, int32_t count, T* buffer, Split<T>* out) const {
  const int64_t from = (t - 1) * emissions_.row_stride;
  const bool is_bad = dispatch(emissions_.dtype, [&](auto kind) {
    using E = decltype(kind);
    const E* data = static_cast<const E*>(emissions_.data) + from;
    const auto step = [&] {
      if constexpr (sizeof(E) == 4)
        return loops_.split_f32;
      else
        return loops_.split_f64;
    }();
    return step(data, emissions_.row_stride, count, index_.data(), live_slots_,
                static_cast<int32_t>(padded_slots_), buffer, out);
  });
  if (is_bad) [[unlikely]]
    fail_bad_emission(op_, trellis_graph_.labels, emissions_);
}

/// Computes the scores after the first frame; returns the base of their exponents.
template <class T>
int64_t DiagonalRun<T>::enter(const Split<T>* emissions, Row now) const {
  const StateRange w = range(1);
  set_zero(now, w.low, w.high);
  // A state outside the range leads to no accept node.
  const StateRange entered{std::max(w.low, first_.low), std::min(w.high, first_.high)};
  double top = -std::numeric_limits<double>::infinity();
  auto value = [&](int32_t p) {
    const Split<T> e = emissions[slot_.get()[p]];
    const Scaled& x = entering_[p - first_.low];
    if (x.is_zero() || e.mantissa == T(0)) return Scaled{};
    return renormalize(x.mantissa * static_cast<double>(e.mantissa),
                       x.exponent + static_cast<double>(e.exponent));
  };
  for (int32_t p = entered.low; p < entered.high; ++p) top = std::max(top, value(p).exponent);
  const int64_t base = std::isfinite(top) ? static_cast<int64_t>(top) : 0;
  for (int32_t p = entered.low; p < entered.high; ++p) set(now, p, value(p), base);
  return base;
}

/// Computes the scores after frame t from those before it; changes `base` every kBaseFrames frames.
template <class T>
inline void DiagonalRun<T>::advance(int32_t t, Row before, const Split<T>* emissions, Row now,
                                    int64_t& base) const {
  const StateRange w = range(t);
  if (t == 1)
    base = enter(emissions, now);
  else
    loops_.forward.of[kind_][is_weighted_](diagonals_, before, emissions, w.low, w.high, now);
  if (t % kBaseFrames == 0) base += loops_.rebase(now, w.low, w.high);
  if (t < frames_) {
    // The next frame also reads states outside the range of this one.
    const StateRange next = range(t + 1);
    set_zero(now, std::min(next.low - high_offset_, w.low), w.low);
    set_zero(now, w.high, std::max(next.high - low_offset_, w.high));
  }
}

template <class T>
void DiagonalRun<T>::run_forward(bool keep) {
  base_.resize(static_cast<size_t>(frames_ / kBaseFrames) + 1);
  const bool keep_all = keep && stride_ == 1;
  diagonals_.row_size = make_rows(0).size();
  if (keep_all) {
    rows_ = make_rows(frames_);
    split_ = AlignedBuffer<Split<T>>(frames_ * padded_slots_);
  } else if (keep) {
    rows_ = make_rows(std::max(frames_ / stride_, 1));
  }
  const RowStore<T> two = keep_all ? RowStore<T>() : make_rows(2);
  const AlignedBuffer<Split<T>> some =
      keep_all ? AlignedBuffer<Split<T>>() : AlignedBuffer<Split<T>>(kSplitFrames * padded_slots_);
  const AlignedBuffer<T> buffer(padded_slots_);

  const bool is_possible = find_ranges();
  int64_t running_base = 0;
  Row before{}, now{};
  for (int32_t first = 1; first <= frames_; first += kSplitFrames) {
    if ((first - 1) % kBaseFrames == 0) poll_interrupt();
    const int32_t count = std::min(kSplitFrames, frames_ - first + 1);
    Split<T>* emissions = keep_all ? split_.get() + (first - 1) * padded_slots_ : some.get();
    split(first, count, buffer.get(), emissions);
    for (int32_t t = first; t < first + count && is_possible; ++t) {
      before = now;
      now = keep_all ? rows_.row(t - 1) : two.row(t % 2);
      advance(t, before, emissions + (t - first) * padded_slots_, now, running_base);
      base_[static_cast<size_t>(t / kBaseFrames)] = running_base;
      if (keep && stride_ > 1 && t % stride_ == 0) copy(now, t);
    }
  }
  ScaledSum sum;
  if (is_possible) {
    const StateRange w = range(frames_);
    for (int32_t p = std::max(w.low, last_.low); p < std::min(w.high, last_.high); ++p) {
      if (now.mantissa[p] == T(0) || factor_->end[p].is_zero()) continue;
      const Scaled term = product(score(now, p, base(frames_)), factor_->end[p]);
      sum.add(term.mantissa, term.exponent);
    }
  }
  total_ = sum.get();
  if (total_.is_zero()) {
    rows_ = {};
    split_ = {};
  }
}

/// Keeps a copy of the scores after frame t.
template <class T>
void DiagonalRun<T>::copy(Row now, int32_t t) const {
  const Row kept = rows_.row(t / stride_ - 1);
  const int64_t low = -std::max(high_offset_, 0), high = padded_states_ + std::max(-low_offset_, 0);
  std::copy(now.mantissa + low, now.mantissa + high, kept.mantissa + low);
  std::copy(now.exponent + low, now.exponent + high, kept.exponent + low);
}

/// Recomputes the segment that ends with frame t.
template <class T>
void DiagonalRun<T>::recompute(DiagonalSegment& segment, int32_t t) const {
  segment.first = (t - 1) / stride_ * stride_ + 1;
  split(segment.first, t - segment.first + 1, segment.buffer.get(), segment.emissions.get());
  int64_t unused = 0;  // the bases are known
  for (int32_t s = segment.first; s <= t; ++s)
    advance(s, s == 1 ? Row{} : row(segment, s - 1), emissions(segment, s), row(segment, s),
            unused);
}

#define ARCGRAD_INSTANTIATE(T)                          \
  template void DiagonalRun<T>::run_forward(bool keep); \
  template void DiagonalRun<T>::recompute(DiagonalSegment& segment, int32_t t) const;
ARCGRAD_INSTANTIATE(float)
ARCGRAD_INSTANTIATE(double)
#undef ARCGRAD_INSTANTIATE

}  // namespace arcgrad::trellis::diagonal
