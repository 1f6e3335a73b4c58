#pragma once

// The loops of the `frames` kernel over the labels of one frame. frames.h explains the algorithm.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// The sum of exp over the entries of a frame: exp(scale) * sum, with the scale near the largest
/// entry.
///
/// The next frame uses the scale as its guess and must not wait for the sum. `has_bad` separates
/// the two in memory, so that compilers do not store both with one instruction.
template <class T>
struct FrameSum {
  T scale;
  bool has_bad;  // an entry is NaN or +inf
  T sum;
};

/// The scale and the sum of a frame, kept for gradients.
struct KeptSum {
  double scale, sum;
};
/// Frames of up to this many entries are short.
inline constexpr int64_t kShortFrame = 32;

/// Loops over the `count` contiguous entries of one frame. They prefetch the frame `next`, because
/// rows may be far apart in memory.
template <class T>
struct FrameTable {
  /// A good guess of the scale, such as the scale of the frame before, saves a pass over the
  /// entries.
  void (*sum)(const T* frame, int64_t count, T guess, const T* next, FrameSum<T>* out);
  /// Sets `gradient` to `factor` * exp(entry - scale), or adds it.
  using Spread = void(const T* frame, int64_t count, T scale, T factor, T* gradient, const T* next);
  Spread* set;
  Spread* add;
  /// Sets `rows` rows of short frames, with the factor `delta` / sum.
  void (*set_rows)(const T* frames, int64_t stride, int64_t count, const KeptSum* of, double delta,
                   T* gradients, int64_t gradient_stride, int64_t rows);
};

namespace baseline {
extern const FrameTable<float> frames_f32;
extern const FrameTable<double> frames_f64;
}  // namespace baseline
namespace avx2 {
extern const FrameTable<float> frames_f32;
extern const FrameTable<double> frames_f64;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace on_frames {

inline constexpr int kWidth = 8;
/// Vectors per iteration, for instruction-level parallelism.
inline constexpr int kUnroll = 4;

template <class T>
using L = Lanes<T, kWidth>;

/// exp(x) for x between -87 and 80.
ARCGRAD_INLINE L<float>::F exp_within(L<float>::F x) {
  using F = L<float>::F;
  // Unsigned, because the sum may overflow where x is out of range.
  typedef uint32_t U __attribute__((vector_size(sizeof(F))));
  const F round = F{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers
  const F shifted = x * 1.44269504f + round;
  const F whole = shifted - round;
  // log(2) in two parts, of which the first has few digits, so that its product is exact.
  const F r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  // The minimax polynomial, relative error 3e-9. The largest terms are added last, to lose few
  // digits.
  const F r2 = r * r;
  F p = (4.166838750e-2f + r * 8.368711216e-3f) + r2 * 1.381461051e-3f;
  p = p * r2 + (4.999999345e-1f + r * 1.666652068e-1f);
  p = (p * r2 + r) + 1.0f;
  // The low bits of the shifted number hold the exponent.
  return bits_as<F>(bits_as<U>(p) + (bits_as<U>(shifted) << L<float>::kFractionBits));
}

/// exp(x) for x of at most 80; 0 where it would be smaller than a normal number.
ARCGRAD_INLINE L<float>::F exp_of(L<float>::F x) {
  return bits_as<L<float>::F>(bits_as<L<float>::I>(exp_within(x)) & (x >= L<float>::F{} - 87.0f));
}

ARCGRAD_INLINE L<double>::F exp_of(L<double>::F x) {
  L<double>::F mantissa;
  L<double>::I exponent;
  split_exp<L<double>>(x, mantissa, exponent);
  return mantissa * power<L<double>>(exponent);
}

/// A term of a sum whose largest term is about 1; terms below exp(-87) do not matter. The result is
/// meaningless if x is above 80: then the caller sums again.
ARCGRAD_INLINE L<float>::F term(L<float>::F x) {
  return exp_within(larger<L<float>::F>(x, L<float>::F{} - 87.0f));
}
ARCGRAD_INLINE L<double>::F term(L<double>::F x) {
  return exp_of(x < 80.0 ? x : L<double>::F{} + 80.0);
}

/// Loads the last count % kWidth entries of a frame: into the last lanes of a vector or, if the
/// frame is shorter than a vector, into the first. The other lanes are `other`.
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

inline constexpr int kRound = kUnroll * kWidth;

/// Prefetches the entries of one iteration.
template <class T>
ARCGRAD_INLINE void prefetch_round(const T* at) {
  constexpr int kCacheLine = 64 / static_cast<int>(sizeof(T));
  for (int i = 0; i < kRound; i += kCacheLine) __builtin_prefetch(at + i);
}

/// Calls `f(vector)` for all entries of a frame; missing lanes are -inf.
template <class T, class Each>
ARCGRAD_INLINE void for_each(const T* frame, int64_t count, const T* next, Each f) {
  using F = typename L<T>::F;
  int64_t k = 0;
  for (; k + kRound <= count; k += kRound) {
    prefetch_round(next + k);
    for (int u = 0; u < kUnroll; ++u) f(u, load<F>(frame + k + u * kWidth));
  }
  // Unrolled, so that the state of `f` for each `u` stays in registers.
#pragma GCC unroll 4
  for (int u = 0; u < kUnroll - 1; ++u) {
    if (k + kWidth > count) break;
    f(u, load<F>(frame + k));
    k += kWidth;
  }
  if (k < count) f(kUnroll - 1, load_rest(frame, count, -T(__builtin_inf())));
}

/// The lanes of a vector combined in pairs, until one is left.
template <class T, class Combine>
ARCGRAD_INLINE T fold(typename L<T>::F lanes, Combine combine) {
  static_assert(kWidth == 8);
  const auto four = combine(__builtin_shufflevector(lanes, lanes, 0, 1, 2, 3),
                            __builtin_shufflevector(lanes, lanes, 4, 5, 6, 7));
  const auto two = combine(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return combine(two[0], two[1]);
}

/// How far a scale may be from the largest entry: large differences of entries lose digits.
template <class T>
inline constexpr T kClose = 8;

template <class T>
ARCGRAD_INLINE T largest_lane(typename L<T>::F lanes) {
  return fold<T>(lanes, [](auto a, auto b) { return a > b ? a : b; });
}
template <class T>
ARCGRAD_INLINE T sum_of_lanes(typename L<T>::F lanes) {
  return fold<T>(lanes, [](auto a, auto b) { return a + b; });
}

/// Whether an entry is NaN or +inf.
template <class T>
[[gnu::noinline]] bool has_bad(const T* frame, int64_t count) {
  typename L<T>::I bad{};
  for_each(frame, count, frame, [&](int, typename L<T>::F w) { bad |= bad_lanes<L<T>>(w); });
  return lane_bits(bad) != 0;
}

/// Sets `out` from the sums relative to the guess, or from `again(scale)` if the guess is not close
/// to the largest entry. `added` is the sum of the entries: only if it is NaN or infinite can an
/// entry be NaN or +inf.
template <class T, class Again>
ARCGRAD_INLINE void set_sum(const T* frame, int64_t count, typename L<T>::F added, T largest_entry,
                            typename L<T>::F sums, T guess, Again again,
                            FrameSum<T>* __restrict out) {
  constexpr T kNone = -T(__builtin_inf());
  out->has_bad = lane_bits(bad_lanes<L<T>>(added)) != 0 && has_bad(frame, count);
  if (out->has_bad || largest_entry == kNone) {
    out->scale = kNone;
    out->sum = 0;
  } else if (largest_entry - guess < kClose<T> && guess - largest_entry < kClose<T>) {
    out->scale = guess;
    out->sum = sum_of_lanes<T>(sums);
  } else {
    out->scale = largest_entry;
    out->sum = sum_of_lanes<T>(again(largest_entry));
  }
}

/// sum() for a frame of `N` vectors, of which the last may be partial.
template <class T, int N>
ARCGRAD_INLINE void sum_few(const T* frame, int64_t count, T guess, FrameSum<T>* __restrict out) {
  using F = typename L<T>::F;
  F w[N];
  for (int i = 0; i < N - 1; ++i) w[i] = load<F>(frame + i * kWidth);
  w[N - 1] = count == N * kWidth ? load<F>(frame + (N - 1) * kWidth)
                                 : load_rest(frame, count, -T(__builtin_inf()));
  F top = w[0], added = w[0];
  for (int i = 1; i < N; ++i) {
    top = larger(top, w[i]);
    added += w[i];
  }
  const auto sums = [&](T scale) {
    F all = term(w[0] - scale);
    for (int i = 1; i < N; ++i) all += term(w[i] - scale);
    return all;
  };
  set_sum<T>(frame, count, added, largest_lane<T>(top), sums(guess), guess, sums, out);
}

template <class T>
void sum(const T* frame, int64_t count, T guess, const T* next, FrameSum<T>* __restrict out) {
  using F = typename L<T>::F;
  if (count > 0 && count <= kRound) {
    switch ((count + kWidth - 1) / kWidth) {
      case 1:
        return sum_few<T, 1>(frame, count, guess, out);
      case 2:
        return sum_few<T, 2>(frame, count, guess, out);
      case 3:
        return sum_few<T, 3>(frame, count, guess, out);
      default:
        return sum_few<T, 4>(frame, count, guess, out);
    }
  }
  F top[kUnroll], sums[kUnroll], added{};
  for (int u = 0; u < kUnroll; ++u) {
    top[u] = F{} - T(__builtin_inf());
    sums[u] = F{};
  }
  for_each(frame, count, next, [&](int u, F w) {
    added += w;
    top[u] = larger(top[u], w);
    sums[u] += term(w - guess);
  });
  const auto all = [&] { return (sums[0] + sums[1]) + (sums[2] + sums[3]); };
  const auto again = [&](T scale) {
    for (int u = 0; u < kUnroll; ++u) sums[u] = F{};
    for_each(frame, count, frame, [&](int u, F w) { sums[u] += term(w - scale); });
    return all();
  };
  const F highest = larger(larger(top[0], top[1]), larger(top[2], top[3]));
  set_sum<T>(frame, count, added, largest_lane<T>(highest), all(), guess, again, out);
}

template <class T, bool kAdd>
ARCGRAD_INLINE void spread_frame(const T* frame, int64_t count, T scale, T factor, T* gradient,
                                 const T* next) {
  using F = typename L<T>::F;
  int64_t k = 0;
  const auto put = [&](int64_t at) {
    F g = factor * exp_of(load<F>(frame + at) - scale);
    if constexpr (kAdd) g += load<F>(gradient + at);
    store(gradient + at, g);
  };
  for (; k + kRound <= count; k += kRound) {
    prefetch_round(next + k);
    for (int u = 0; u < kUnroll; ++u) put(k + u * kWidth);
  }
  for (; k + kWidth <= count; k += kWidth) put(k);
  if (k == count) return;
  // Overlapping vectors may set entries twice.
  if (!kAdd && count > kWidth) return put(count - kWidth);
  const F g = factor * exp_of(load_rest(frame, count, -T(__builtin_inf())) - scale);
  const int skip = count > kWidth ? static_cast<int>(k + kWidth - count) : 0;
  for (int i = skip; k < count; ++k, ++i) gradient[k] = kAdd ? gradient[k] + g[i] : g[i];
}

template <class T, bool kAdd>
void spread(const T* frame, int64_t count, T scale, T factor, T* gradient, const T* next) {
  spread_frame<T, kAdd>(frame, count, scale, factor, gradient, next);
}

template <class T>
void set_rows(const T* frames, int64_t stride, int64_t count, const KeptSum* of, double delta,
              T* gradients, int64_t gradient_stride, int64_t rows) {
  for (int64_t t = 0; t < rows; ++t, frames += stride, gradients += gradient_stride)
    spread_frame<T, false>(frames, count, static_cast<T>(of[t].scale),
                           static_cast<T>(delta / of[t].sum), gradients, frames);
}

template <class T>
inline constexpr FrameTable<T> kLoops{sum<T>, spread<T, false>, spread<T, true>, set_rows<T>};

}  // namespace on_frames

const FrameTable<float> frames_f32 = on_frames::kLoops<float>;
const FrameTable<double> frames_f64 = on_frames::kLoops<double>;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
