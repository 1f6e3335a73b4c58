#pragma once

#include <cstdint>

#include "arcgrad/trellis/steps.h"

namespace arcgrad::trellis {

/// The sum of exp over the entries of a frame: exp(top) * sum, where `top` is the largest entry.
template <class T>
struct FrameSum {
  T top;
  T sum;
  bool has_bad;  // NaN or +inf was met
};

/// Loops over the `count` entries of one frame, which lie next to each other.
template <class T>
struct FrameSteps {
  FrameSum<T> (*sum)(const T* frame, int64_t count);
  /// Sets `gradient` to `factor` * exp(entry - top), or adds that.
  using Spread = void(const T* frame, int64_t count, T top, T factor, T* gradient);
  Spread* set;
  Spread* add;
};

namespace baseline {
extern const FrameSteps<float> frames_f32;
extern const FrameSteps<double> frames_f64;
}  // namespace baseline
namespace avx2 {
extern const FrameSteps<float> frames_f32;
extern const FrameSteps<double> frames_f64;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace on_frames {

inline constexpr int kWidth = 8;

template <class T>
using L = Lanes<T, kWidth>;

/// The entries from `k` on; what lies beyond the frame is -inf.
template <class T>
ARCGRAD_INLINE typename L<T>::F load_some(const T* frame, int64_t k, int64_t count) {
  if (k + kWidth <= count) return load<typename L<T>::F>(frame + k);
  T block[kWidth];
  for (int i = 0; i < kWidth; ++i) block[i] = k + i < count ? frame[k + i] : -T(__builtin_inf());
  return load<typename L<T>::F>(block);
}

/// exp of numbers that are not positive.
template <class T>
ARCGRAD_INLINE typename L<T>::F exp_of(typename L<T>::F x) {
  typename L<T>::F mantissa;
  typename L<T>::I exponent;
  split_exp<L<T>>(x, mantissa, exponent);
  return mantissa * power<L<T>>(exponent);
}

template <class T>
FrameSum<T> sum(const T* frame, int64_t count) {
  using F = typename L<T>::F;
  using I = typename L<T>::I;
  F top = F{} - T(__builtin_inf());
  I bad{};
  for (int64_t k = 0; k < count; k += kWidth) {
    const F w = load_some(frame, k, count);
    bad |= bad_lanes<L<T>>(w);
    top = larger(top, w);
  }
  T most = top[0];
  for (int i = 1; i < kWidth; ++i) most = most > top[i] ? most : top[i];
  if (any_lane(bad)) return {most, T(0), true};
  if (most == -T(__builtin_inf())) return {most, T(0), false};
  // Several sums, which are shorter and so lose less by rounding.
  F sums[4] = {};
  for (int64_t k = 0, j = 0; k < count; k += kWidth, j = (j + 1) % 4)
    sums[j] += exp_of<T>(load_some(frame, k, count) - most);
  const F all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  T total = 0;
  for (int i = 0; i < kWidth; ++i) total += all[i];
  return {most, total, false};
}

template <class T, bool kAdd>
void spread(const T* frame, int64_t count, T top, T factor, T* gradient) {
  using F = typename L<T>::F;
  int64_t k = 0;
  for (; k + kWidth <= count; k += kWidth) {
    F g = factor * exp_of<T>(load<F>(frame + k) - top);
    if constexpr (kAdd) g += load<F>(gradient + k);
    store(gradient + k, g);
  }
  if (k == count) return;
  const F g = factor * exp_of<T>(load_some(frame, k, count) - top);
  for (int i = 0; k < count; ++k, ++i) gradient[k] = kAdd ? gradient[k] + g[i] : g[i];
}

template <class T>
inline constexpr FrameSteps<T> kSteps{sum<T>, spread<T, false>, spread<T, true>};

}  // namespace on_frames

const FrameSteps<float> frames_f32 = on_frames::kSteps<float>;
const FrameSteps<double> frames_f64 = on_frames::kSteps<double>;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
