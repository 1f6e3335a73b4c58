#pragma once

#include <cstdint>

#include "arcgrad/trellis/steps.h"

namespace arcgrad::trellis {

/// The sum of exp over the entries of a frame: exp(scale) * sum, with the scale near the largest.
template <class T>
struct FrameSum {
  T scale;
  T sum;
  bool has_bad;  // NaN or +inf was met
};

/// Loops over the `count` entries of one frame, which lie next to each other.
template <class T>
struct FrameSteps {
  /// A good guess of the scale, such as that of the frame before, saves a look at the entries.
  FrameSum<T> (*sum)(const T* frame, int64_t count, T guess);
  /// Sets `gradient` to `factor` * exp(entry - scale), or adds that.
  using Spread = void(const T* frame, int64_t count, T scale, T factor, T* gradient);
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
/// Vectors per round, so that one does not wait for the other.
inline constexpr int kUnroll = 4;

template <class T>
using L = Lanes<T, kWidth>;

/// exp(x) for x of at most 80; 0 where it would be smaller than a normal number.
ARCGRAD_INLINE L<float>::F exp_of(L<float>::F x) {
  using F = L<float>::F;
  using I = L<float>::I;
  const F round = F{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers
  const F shifted = x * 1.44269504f + round;
  const F whole = shifted - round;
  // log(2) in two parts, of which the first has few digits, so that its product is exact.
  const F r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  // The low bits of the shifted number are those of the exponent.
  const I bits = bits_as<I>(p) + (bits_as<I>(shifted) << L<float>::kFractionBits);
  return bits_as<F>(bits & (x >= F{} - 87.0f));
}

ARCGRAD_INLINE L<double>::F exp_of(L<double>::F x) {
  L<double>::F mantissa;
  L<double>::I exponent;
  split_exp<L<double>>(x, mantissa, exponent);
  return mantissa * power<L<double>>(exponent);
}

/// The last entries of a frame whose size is no multiple of the width: a whole vector, of which
/// those lanes that belong to the vector before are `other`.
template <class T>
ARCGRAD_INLINE typename L<T>::F load_rest(const T* frame, int64_t count, T other) {
  using F = typename L<T>::F;
  const int64_t rest = count % kWidth;
  if (count > kWidth) {
    typename L<T>::I lane;
    for (int i = 0; i < kWidth; ++i) lane[i] = i;
    const F w = load<F>(frame + count - kWidth);
    return lane >= static_cast<typename L<T>::Int>(kWidth - rest) ? w : F{} + other;
  }
  T block[kWidth];
  for (int i = 0; i < kWidth; ++i) block[i] = i < count ? frame[i] : other;
  return load<F>(block);
}

/// Calls `f(vector)` for all entries of a frame; missing lanes are -inf.
template <class T, class Each>
ARCGRAD_INLINE void for_each(const T* frame, int64_t count, Each f) {
  using F = typename L<T>::F;
  constexpr int kRound = kUnroll * kWidth;
  int64_t k = 0;
  for (; k + kRound <= count; k += kRound)
    for (int u = 0; u < kUnroll; ++u) f(u, load<F>(frame + k + u * kWidth));
  for (int u = 0; k + kWidth <= count; k += kWidth, ++u) f(u, load<F>(frame + k));
  if (k < count) f(kUnroll - 1, load_rest(frame, count, -T(__builtin_inf())));
}

template <class F, class T>
ARCGRAD_INLINE T largest(F lanes, T start) {
  for (int i = 0; i < kWidth; ++i) start = start > lanes[i] ? start : lanes[i];
  return start;
}

/// Where sums are scaled by exp of another number than the largest entry, it must be as close as
/// this: differences of entries lose digits as they grow.
template <class T>
inline constexpr T kClose = 8;

template <class T>
FrameSum<T> sum(const T* frame, int64_t count, T guess) {
  using F = typename L<T>::F;
  using I = typename L<T>::I;
  constexpr T kNone = -T(__builtin_inf());
  // Entries above the guess by so much would overflow; the largest then shows that it is wrong.
  const F most = F{} + T(80);
  F top[kUnroll], sums[kUnroll];
  I bad{};
  for (int u = 0; u < kUnroll; ++u) {
    top[u] = F{} + kNone;
    sums[u] = F{};
  }
  for_each(frame, count, [&](int u, F w) {
    const F d = w - guess;
    bad |= bad_lanes<L<T>>(w);
    top[u] = larger(top[u], w);
    sums[u] += exp_of(d < most ? d : most);
  });
  const T largest_entry = largest(larger(larger(top[0], top[1]), larger(top[2], top[3])), kNone);
  if (any_lane(bad)) return {largest_entry, T(0), true};
  if (largest_entry == kNone) return {kNone, T(0), false};
  T scale = guess;
  if (!(largest_entry - guess < kClose<T> && guess - largest_entry < kClose<T>)) {
    scale = largest_entry;
    for (int u = 0; u < kUnroll; ++u) sums[u] = F{};
    for_each(frame, count, [&](int u, F w) { sums[u] += exp_of(w - scale); });
  }
  const F all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  T total = 0;
  for (int i = 0; i < kWidth; ++i) total += all[i];
  return {scale, total, false};
}

template <class T, bool kAdd>
void spread(const T* frame, int64_t count, T scale, T factor, T* gradient) {
  using F = typename L<T>::F;
  int64_t k = 0;
  const auto put = [&](int64_t at) {
    F g = factor * exp_of(load<F>(frame + at) - scale);
    if constexpr (kAdd) g += load<F>(gradient + at);
    store(gradient + at, g);
  };
  constexpr int kRound = kUnroll * kWidth;
  for (; k + kRound <= count; k += kRound)
    for (int u = 0; u < kUnroll; ++u) put(k + u * kWidth);
  for (; k + kWidth <= count; k += kWidth) put(k);
  if (k == count) return;
  const F g = factor * exp_of(load_rest(frame, count, -T(__builtin_inf())) - scale);
  const int skip = count > kWidth ? static_cast<int>(k + kWidth - count) : 0;
  for (int i = skip; k < count; ++k, ++i) gradient[k] = kAdd ? gradient[k] + g[i] : g[i];
}

template <class T>
inline constexpr FrameSteps<T> kSteps{sum<T>, spread<T, false>, spread<T, true>};

}  // namespace on_frames

const FrameSteps<float> frames_f32 = on_frames::kSteps<float>;
const FrameSteps<double> frames_f64 = on_frames::kSteps<double>;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
