#pragma once

// The loops of the `diagonal` kernel over the states of one frame. diagonal.cpp explains the
// algorithm.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// An emission as mantissa * 2^exponent.
template <class T>
struct Split;
template <>
struct Split<float> {
  float mantissa;
  int32_t exponent;
};
template <>
struct Split<double> {
  double mantissa;
  int64_t exponent;
};

/// Ranges of states start and end at multiples of this.
inline constexpr int32_t kStateBlock = 8;

/// The scores of consecutive states. Loops also read some states before and after their range,
/// which must be zero there.
template <class T>
struct StateRow {
  T* mantissa;
  Exponent<T>* exponent;
};

/// The arcs between states: entry p of diagonal k is the arc from state p - offset[k] to state p.
template <class T>
struct Diagonals {
  int32_t offset[kMostDiagonals];
  /// The weights. A missing arc has mantissa 0 and exponent kDead. For unweighted graphs mantissas
  /// are null, and exponents are upper bounds: kDead for a missing arc, very large for an arc.
  const T* mantissa[kMostDiagonals];
  const Exponent<T>* exponent[kMostDiagonals];
  /// For each state, which of a frame's emissions it reads.
  const int32_t* slot;
  /// The stride of the rows of forward scores, in entries.
  int64_t row_size;
};

/// Slots with their states and label, ordered by the number of states, which avoids branch
/// mispredictions at the ends of loops over states.
struct SlotStates {
  int32_t num_slots;
  int32_t num_single;  // the first of them, which have one state each
  const int32_t* offset;
  const int32_t* state;
  const int32_t* label;
};

/// The loops for graphs of 2, 3 and 6 diagonals, each without and with weights.
template <class F>
struct PerDiagonals {
  F* of[3][2];
};

template <class T>
struct DiagonalTable {
  using Int = Exponent<T>;
  using Row = StateRow<T>;

  /// Converts the first `live` of `padded` entries of each of `frames` frames; the others become
  /// zero. Entry k of a frame is at index[k]. Returns whether an entry is NaN or +inf. `buffer` has
  /// `padded` entries.
  template <class E>
  using SplitFrames = bool(const E* from, int64_t row_stride, int32_t frames, const int64_t* index,
                           int32_t live, int32_t padded, T* buffer, Split<T>* out);
  SplitFrames<float>* split_f32;
  SplitFrames<double>* split_f64;

  /// The scores `now` of the states in [low, high) after a frame from those before it.
  using Forward = void(const Diagonals<T>& diagonals, Row before, const Split<T>* emissions,
                       int32_t low, int32_t high, Row now);
  PerDiagonals<Forward> forward;

  /// One frame backward. `next` and `now` hold the scores to the end of the paths that begin with
  /// the next frame and with this frame. Also writes the posteriors of the states after this frame,
  /// divided by 2^scale, and returns their sum.
  using Backward = double(const Diagonals<T>& diagonals, Row next, Row forward,
                          const Split<T>* emissions, Int scale, int32_t low, int32_t high, Row now,
                          T* posterior);
  PerDiagonals<Backward> backward;
  /// The same for the last frame; `next` are the scores of the states at the end.
  Backward* backward_last;

  /// Adds `factor` * 2^-scale times the score of the paths through each arc to total[k][state].
  using AddArcs = void(const Diagonals<T>& diagonals, Row before, Row now, Int scale, T factor,
                       int32_t low, int32_t high, T* const* total);
  PerDiagonals<AddArcs> add_arcs;

  /// Subtracts the largest exponent from all and returns it; returns 0 if all scores are zero.
  Int (*rebase)(Row row, int32_t low, int32_t high);

  /// Adds `factor` times the posteriors to the gradient of frame t, which is row t of `gradient`.
  template <class G>
  using Scatter = void(const SlotStates& slots, const T* posterior, double factor, G* gradient,
                       int64_t row_size, int32_t t);
  Scatter<float>* scatter_f32;
  Scatter<double>* scatter_f64;
};

namespace baseline {
extern const DiagonalTable<float> diagonal_f32;
extern const DiagonalTable<double> diagonal_f64;
}  // namespace baseline
namespace avx2 {
extern const DiagonalTable<float> diagonal_f32;
extern const DiagonalTable<double> diagonal_f64;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace diagonal_loops {

#ifdef __AVX2__
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif
template <class T>
inline constexpr int kWidth = kBytes / static_cast<int>(sizeof(T));
template <class T>
using Vector = Lanes<T, kWidth<T>>;

/// The emissions of one vector of states.
ARCGRAD_INLINE void expand(const Split<float>* emissions, const int32_t* slot,
                           Vector<float>::F& mantissa, Vector<float>::I& exponent) {
  typedef int64_t Pairs __attribute__((vector_size(kBytes)));
  using F = Vector<float>::F;
  using I = Vector<float>::I;
  auto pair = [&](int k) { return load<int64_t>(&emissions[slot[k]]); };
#ifdef __AVX2__
  const Pairs a{pair(0), pair(1), pair(4), pair(5)}, b{pair(2), pair(3), pair(6), pair(7)};
  const F x = bits_as<F>(a), y = bits_as<F>(b);
  mantissa = __builtin_shufflevector(x, y, 0, 2, 8, 10, 4, 6, 12, 14);
  exponent = bits_as<I>(__builtin_shufflevector(x, y, 1, 3, 9, 11, 5, 7, 13, 15));
#else
  const Pairs a{pair(0), pair(1)}, b{pair(2), pair(3)};
  const F x = bits_as<F>(a), y = bits_as<F>(b);
  mantissa = __builtin_shufflevector(x, y, 0, 2, 4, 6);
  exponent = bits_as<I>(__builtin_shufflevector(x, y, 1, 3, 5, 7));
#endif
}

ARCGRAD_INLINE void expand(const Split<double>* emissions, const int32_t* slot,
                           Vector<double>::F& mantissa, Vector<double>::I& exponent) {
  typedef double Pair __attribute__((vector_size(16)));
  auto pair = [&](int k) { return load<Pair>(&emissions[slot[k]]); };
#ifdef __AVX2__
  const auto a = __builtin_shufflevector(pair(0), pair(2), 0, 1, 2, 3);
  const auto b = __builtin_shufflevector(pair(1), pair(3), 0, 1, 2, 3);
  mantissa = __builtin_shufflevector(a, b, 0, 4, 2, 6);
  exponent = bits_as<Vector<double>::I>(__builtin_shufflevector(a, b, 1, 5, 3, 7));
#else
  const Pair a = pair(0), b = pair(1);
  mantissa = __builtin_shufflevector(a, b, 0, 2);
  exponent = bits_as<Vector<double>::I>(__builtin_shufflevector(a, b, 1, 3));
#endif
}

template <class V>
ARCGRAD_INLINE V smaller(V a, V b) {
  return a < b ? a : b;
}

/// `exponent` - `scale`, at least kDead.
template <class L>
ARCGRAD_INLINE typename L::I relative(typename L::I exponent, typename L::Int scale) {
  return larger<typename L::I>(exponent - scale, typename L::I{} + kDead);
}

/// 2^exponent for exponents that are at most about 0, up to rounding. Those of zero scores may be
/// larger.
template <class L>
ARCGRAD_INLINE typename L::F bounded_power(typename L::I exponent) {
  return power<L>(smaller<typename L::I>(exponent, typename L::I{} + 32));
}

/// Prefetch distance in frames, if rows are at least kFarApart entries apart, so that the hardware
/// does not prefetch them.
inline constexpr int32_t kAhead = 4;
inline constexpr int64_t kFarApart = 256;

/// The numbers row[index[0]], row[index[1]], ... Indices ascend.
template <class F, class E>
ARCGRAD_INLINE F load_at(const E* row, const int64_t* index) {
  F out;
  constexpr int kW = sizeof(F) / sizeof(out[0]);
  if (sizeof(E) == sizeof(out[0]) && index[kW - 1] - index[0] == kW - 1)
    return load<F>(row + index[0]);
  for (int k = 0; k < kW; ++k) out[k] = static_cast<decltype(+out[0])>(row[index[k]]);
  return out;
}

template <class T, class E>
bool split_frames(const E* from, int64_t row_stride, int32_t frames, const int64_t* index,
                  int32_t live, int32_t padded, T* buffer, Split<T>* out) {
  using F = typename Vector<T>::F;
  using I = typename Vector<T>::I;
  constexpr int kW = kWidth<T>;
  const T dead = -static_cast<T>(__builtin_inf());
  const F limit = F{} + (sizeof(T) == 4 ? static_cast<T>(3.4028234663852886e38)
                                        : static_cast<T>(1.7976931348623157e308));
  for (int32_t k = live; k < padded; ++k) buffer[k] = dead;
  const int32_t whole = live / kW * kW;
  I good = ~I{};
  for (int32_t t = 0; t < frames; ++t) {
    const E* row = from + t * row_stride;
    for (int32_t k = whole; k < live; ++k) buffer[k] = static_cast<T>(row[index[k]]);
    if (row_stride >= kFarApart && t + kAhead < frames)
      for (int32_t k = 0; k < live; ++k) __builtin_prefetch(row + kAhead * row_stride + index[k]);
    for (int32_t k = 0; k < padded; k += kW) {
      const F w = k < whole ? load_at<F>(row, index + k) : load<F>(buffer + k);
      good &= bits_as<I>(w <= limit);
      F mantissa;
      I exponent;
      split_exp<Vector<T>>(w, mantissa, exponent);
      const F q = bits_as<F>(exponent);
      F first, second;
      if constexpr (kW == 8) {
        const F a = __builtin_shufflevector(mantissa, q, 0, 8, 1, 9, 4, 12, 5, 13);
        const F b = __builtin_shufflevector(mantissa, q, 2, 10, 3, 11, 6, 14, 7, 15);
        first = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
        second = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
      } else if constexpr (kW == 4) {
        first = __builtin_shufflevector(mantissa, q, 0, 4, 1, 5);
        second = __builtin_shufflevector(mantissa, q, 2, 6, 3, 7);
      } else {
        first = __builtin_shufflevector(mantissa, q, 0, 2);
        second = __builtin_shufflevector(mantissa, q, 1, 3);
      }
      T* to = reinterpret_cast<T*>(out + k);
      store(to, first);
      store(to + kW, second);
    }
    out += padded;
  }
  bool all = true;
  for (int k = 0; k < kW; ++k) all &= good[k] != 0;
  return !all;
}

/// Adds N terms, each given by its mantissa and exponent; one state per lane.
template <class L, int N>
ARCGRAD_INLINE void add_terms(const typename L::F* mantissa, const typename L::I* exponent,
                              typename L::F& sum, typename L::I& top) {
  using I = typename L::I;
  top = exponent[0];
  for (int k = 1; k < N; ++k) top = larger<I>(top, exponent[k]);
  const I low = top - L::kBias;
  for (int k = 0; k < N; ++k) {
    const I biased = larger<I>(exponent[k] - low, I{}) << L::kFractionBits;
    const auto term = mantissa[k] * bits_as<typename L::F>(biased);
    sum = k == 0 ? term : sum + term;
  }
}

/// The scores of the states at `from` times the weights at `to` of diagonal k.
template <class L, bool kWeighted, class T>
ARCGRAD_INLINE void weigh(const Diagonals<T>& diagonals, int k, StateRow<T> row, int32_t from,
                          int32_t to, typename L::F& mantissa, typename L::I& exponent) {
  using F = typename L::F;
  using I = typename L::I;
  mantissa = load<F>(row.mantissa + from);
  exponent = load<I>(row.exponent + from);
  const I w = load<I>(diagonals.exponent[k] + to);
  if constexpr (kWeighted) {
    mantissa *= load<F>(diagonals.mantissa[k] + to);
    exponent = larger<I>(exponent + w, I{} + kDead);
  } else {
    exponent = smaller<I>(exponent, w);
  }
}

template <class T, int N, bool kWeighted>
void forward(const Diagonals<T>& given, StateRow<T> before, const Split<T>* emissions, int32_t low,
             int32_t high, StateRow<T> now) {
  using L = Vector<T>;
  const Diagonals<T> diagonals = given;  // so that stores cannot change it
  for (int32_t p = low; p < high; p += kWidth<T>) {
    typename L::F m[N], sum, e;
    typename L::I q[N], top, e_exponent;
#pragma GCC unroll 6
    for (int k = 0; k < N; ++k)
      weigh<L, kWeighted>(diagonals, k, before, p - diagonals.offset[k], p, m[k], q[k]);
    add_terms<L, N>(m, q, sum, top);
    expand(emissions, diagonals.slot + p, e, e_exponent);
    typename L::F mantissa;
    typename L::I exponent;
    normalize<L>(sum * e, top + e_exponent, mantissa, exponent);
    store(now.mantissa + p, mantissa);
    store(now.exponent + p, exponent);
  }
}

/// Prefetches the memory `count` entries before `at`, which may be outside the array.
template <class P>
ARCGRAD_INLINE void prefetch_before(const P* at, int64_t count) {
  const uintptr_t distance = static_cast<uintptr_t>(count) * sizeof(P);
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) - distance));
}

/// The last part of backward() for the vector of states from p on: writes the posteriors, and the
/// scores to the end, which are `sum` * 2^`top` times the emission.
template <class T>
ARCGRAD_INLINE typename Vector<T>::F finish(typename Vector<T>::F sum, typename Vector<T>::I top,
                                            const Diagonals<T>& diagonals, StateRow<T> forward,
                                            const Split<T>* emissions, Exponent<T> scale, int32_t p,
                                            StateRow<T> now, T* posterior) {
  using L = Vector<T>;
  using F = typename L::F;
  using I = typename L::I;
  if (p % 16 == 0) {
    prefetch_before(forward.mantissa + p, 2 * diagonals.row_size);
    prefetch_before(forward.exponent + p, 2 * diagonals.row_size);
  }
  const I exponent = relative<L>(load<I>(forward.exponent + p), scale) + top;
  const F product = (load<F>(forward.mantissa + p) * sum) * bounded_power<L>(exponent);
  store(posterior + p, product);
  F e, mantissa;
  I e_exponent, out;
  expand(emissions, diagonals.slot + p, e, e_exponent);
  normalize<L>(sum * e, top + e_exponent, mantissa, out);
  store(now.mantissa + p, mantissa);
  store(now.exponent + p, out);
  return product;
}

template <class T>
ARCGRAD_INLINE double add_lanes(typename Vector<T>::F sum) {
  double part[2] = {0.0, 0.0};
  for (int k = 0; k < kWidth<T>; ++k) part[k % 2] += static_cast<double>(sum[k]);
  return part[0] + part[1];
}

template <class T, int N, bool kWeighted>
double backward(const Diagonals<T>& given, StateRow<T> next, StateRow<T> forward,
                const Split<T>* emissions, Exponent<T> scale, int32_t low, int32_t high,
                StateRow<T> now, T* posterior) {
  using L = Vector<T>;
  const Diagonals<T> diagonals = given;
  typename L::F total{};
  for (int32_t p = low; p < high; p += kWidth<T>) {
    typename L::F m[N], sum;
    typename L::I q[N], top;
#pragma GCC unroll 6
    for (int k = 0; k < N; ++k) {
      const int32_t to = p + diagonals.offset[k];
      weigh<L, kWeighted>(diagonals, k, next, to, to, m[k], q[k]);
    }
    add_terms<L, N>(m, q, sum, top);
    total += finish<T>(sum, top, diagonals, forward, emissions, scale, p, now, posterior);
  }
  return add_lanes<T>(total);
}

template <class T>
double backward_last(const Diagonals<T>& diagonals, StateRow<T> next, StateRow<T> forward,
                     const Split<T>* emissions, Exponent<T> scale, int32_t low, int32_t high,
                     StateRow<T> now, T* posterior) {
  using L = Vector<T>;
  typename L::F total{};
  for (int32_t p = low; p < high; p += kWidth<T>)
    total +=
        finish<T>(load<typename L::F>(next.mantissa + p), load<typename L::I>(next.exponent + p),
                  diagonals, forward, emissions, scale, p, now, posterior);
  return add_lanes<T>(total);
}

template <class T, int N, bool kWeighted>
void add_arcs(const Diagonals<T>& given, StateRow<T> before, StateRow<T> now, Exponent<T> scale,
              T factor, int32_t low, int32_t high, T* const* total) {
  using L = Vector<T>;
  using F = typename L::F;
  using I = typename L::I;
  const Diagonals<T> diagonals = given;
  T* to[N];
  for (int k = 0; k < N; ++k) to[k] = total[k];
  for (int32_t p = low; p < high; p += kWidth<T>) {
    const F right = load<F>(now.mantissa + p) * factor;
    const I right_exponent = load<I>(now.exponent + p);
#pragma GCC unroll 6
    for (int k = 0; k < N; ++k) {
      F m;
      I q;
      weigh<L, kWeighted>(diagonals, k, before, p - diagonals.offset[k], p, m, q);
      const F part = (m * right) * bounded_power<L>(relative<L>(q, scale) + right_exponent);
      store(to[k] + p, load<F>(to[k] + p) + part);
    }
  }
}

template <class T>
Exponent<T> rebase(StateRow<T> row, int32_t low, int32_t high) {
  using Int = Exponent<T>;
  Int top = kDead;
  for (int32_t p = low; p < high; ++p) top = row.exponent[p] > top ? row.exponent[p] : top;
  if (top == kDead) return 0;
  for (int32_t p = low; p < high; ++p) {
    const Int q = row.exponent[p] - top;
    const bool alive = row.exponent[p] > kDead && q > kFloor;
    row.exponent[p] = alive ? q : Int{kDead};
    row.mantissa[p] = alive ? row.mantissa[p] : T(0);
  }
  return top;
}

template <class T, class G>
void scatter(const SlotStates& slots, const T* posterior, double factor, G* gradient,
             int64_t row_size, int32_t t) {
  const T f = static_cast<T>(factor);
  G* row = gradient + t * row_size;
  const int32_t* state = slots.state;
  for (int32_t s = 0; s < slots.num_single; ++s)
    row[slots.label[s]] += static_cast<G>(posterior[state[s]] * f);
  for (int32_t s = slots.num_single; s < slots.num_slots; ++s) {
    int32_t k = slots.offset[s];
    const int32_t end = slots.offset[s + 1];
    T sum = posterior[state[k++]];
    if (end - k >= 8) {
      // A label of many states, such as the blank: four sums, for instruction-level parallelism.
      T a = 0, b = 0, c = 0;
      for (; k + 4 <= end; k += 4) {
        sum += posterior[state[k]];
        a += posterior[state[k + 1]];
        b += posterior[state[k + 2]];
        c += posterior[state[k + 3]];
      }
      sum = (sum + a) + (b + c);
    }
    for (; k < end; ++k) sum += posterior[state[k]];
    row[slots.label[s]] += static_cast<G>(sum * f);
  }
  if (row_size >= kFarApart && t >= kAhead)
    for (int32_t s = 0; s < slots.num_slots; ++s)
      __builtin_prefetch(row - kAhead * row_size + slots.label[s], 1);
}

template <class T>
inline constexpr DiagonalTable<T> kLoops{split_frames<T, float>,
                                         split_frames<T, double>,
                                         {{{forward<T, 2, false>, forward<T, 2, true>},
                                           {forward<T, 3, false>, forward<T, 3, true>},
                                           {forward<T, 6, false>, forward<T, 6, true>}}},
                                         {{{backward<T, 2, false>, backward<T, 2, true>},
                                           {backward<T, 3, false>, backward<T, 3, true>},
                                           {backward<T, 6, false>, backward<T, 6, true>}}},
                                         backward_last<T>,
                                         {{{add_arcs<T, 2, false>, add_arcs<T, 2, true>},
                                           {add_arcs<T, 3, false>, add_arcs<T, 3, true>},
                                           {add_arcs<T, 6, false>, add_arcs<T, 6, true>}}},
                                         rebase<T>,
                                         scatter<T, float>,
                                         scatter<T, double>};

}  // namespace diagonal_loops

const DiagonalTable<float> diagonal_f32 = diagonal_loops::kLoops<float>;
const DiagonalTable<double> diagonal_f64 = diagonal_loops::kLoops<double>;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
