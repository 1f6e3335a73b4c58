#pragma once

// Vectors, and the arithmetic of scores in the loops that are compiled once per instruction set.
//
// A score exp(x) is stored as mantissa * 2^exponent with the mantissa in [1, 2) and an integer
// exponent: a floating-point number with a wide exponent, which cannot underflow (Rabiner 1989
// scales whole frames for the same purpose). A sum of products needs no exp and no log:
//
//     top = max over terms of exponent,   sum = sum over terms of mantissa * 2^(exponent - top)
//
// power() builds 2^(exponent - top) from bits, normalize() moves the exponent bits of the sum into
// `exponent`, and split_exp() converts weights, with a polynomial for the fraction. Terms below
// 2^-126 (double: 2^-1022) of the largest are lost, which is far below rounding.
// Invariant: a score of zero has mantissa 0 and exponent kDead; the exponents of other scores are
// above kFloor. Cost: two passes over the terms, each with a few integer operations.

#include <cstddef>
#include <cstdint>
#if defined(__FMA__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "arcgrad/trellis/isa/dispatch.h"

// ARCGRAD_ISA is the namespace of the instruction set, so that the copies have different names. Do
// not use the standard library here: the linker could use a template instance compiled for AVX2 in
// the whole program.
namespace arcgrad::trellis::ARCGRAD_ISA {

/// A vector of `W` numbers of type T and the integers that match them.
template <class T, int W>
struct Lanes;

template <int W>
struct Lanes<float, W> {
  using Real = float;
  using Int = int32_t;
  typedef float F __attribute__((vector_size(W * sizeof(float))));
  typedef int32_t I __attribute__((vector_size(W * sizeof(int32_t))));
  static constexpr int kFractionBits = 23;
  static constexpr Int kBias = 127;
};

template <int W>
struct Lanes<double, W> {
  using Real = double;
  using Int = int64_t;
  typedef double F __attribute__((vector_size(W * sizeof(double))));
  typedef int64_t I __attribute__((vector_size(W * sizeof(int64_t))));
  static constexpr int kFractionBits = 52;
  static constexpr Int kBias = 1023;
};

template <>
struct Lanes<double, 1> {
  using Real = double;
  using Int = int64_t;
  using F = double;
  using I = int64_t;
  static constexpr int kFractionBits = 52;
  static constexpr Int kBias = 1023;
};

/// Scores with a lower exponent become zero.
inline constexpr int32_t kFloor = kDead + (1 << 24);

#define ARCGRAD_INLINE [[gnu::always_inline]] inline

template <class To, class From>
ARCGRAD_INLINE To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  __builtin_memcpy(&out, &x, sizeof(To));
  return out;
}

template <class V, class P>
ARCGRAD_INLINE V load(const P* from) {
  V out;
  __builtin_memcpy(&out, from, sizeof(V));
  return out;
}

template <class V, class P>
ARCGRAD_INLINE void store(P* to, V value) {
  __builtin_memcpy(to, &value, sizeof(V));
}

template <class V>
ARCGRAD_INLINE V larger(V a, V b) {
  return a > b ? a : b;
}
#ifdef __AVX2__
// Compilers emit two instructions for the above if one of the numbers is a constant.
template <>
ARCGRAD_INLINE __m256 larger(__m256 a, __m256 b) {
  return _mm256_max_ps(a, b);
}
template <>
ARCGRAD_INLINE __m256d larger(__m256d a, __m256d b) {
  return _mm256_max_pd(a, b);
}
#endif

/// 2^exponent for exponents of at most kBias; 0 for -kBias and below.
template <class L>
ARCGRAD_INLINE typename L::F power(typename L::I exponent) {
  const typename L::I low = typename L::I{} - L::kBias;
  return bits_as<typename L::F>((larger<typename L::I>(exponent, low) + L::kBias)
                                << L::kFractionBits);
}

/// Converts `sum` * 2^`exponent` to a score; `sum` is 0 or a normal number.
template <class L>
ARCGRAD_INLINE void normalize(typename L::F sum, typename L::I exponent, typename L::F& mantissa,
                              typename L::I& out) {
  using I = typename L::I;
  using F = typename L::F;
  const I bits = bits_as<I>(sum);
  const I q = exponent + ((bits >> L::kFractionBits) - L::kBias);
  constexpr typename L::Int kFraction = (typename L::Int{1} << L::kFractionBits) - 1;
  constexpr typename L::Int kOne = L::kBias << L::kFractionBits;
  const I m = (bits & kFraction) | kOne;
  // The exponent bits of a sum of 0 are the lowest, but the result may still be above kFloor.
  const F zero = F{};
  const I dead_q = I{} + kDead;
  const auto alive = (sum > zero) & (q > I{} + kFloor);
  mantissa = alive ? bits_as<F>(m) : zero;
  out = alive ? q : dead_q;
}

/// Converts each number to another type.
template <class To, class From>
ARCGRAD_INLINE To convert(From x) {
  if constexpr (sizeof(To) == sizeof(double) && sizeof(From) == sizeof(double))
    return x;
  else
    return __builtin_convertvector(x, To);
}

/// exp(w) as mantissa * 2^exponent with the mantissa about 1, or 0 for -inf. Exponents saturate at
/// +-2^22. The caller checks for NaN and +inf. The exponents are doubles.
template <class L>
ARCGRAD_INLINE void split_exp_wide(
    typename L::F w, typename L::F& mantissa,
    typename Lanes<double, sizeof(typename L::F) / sizeof(typename L::Real)>::F& exponent) {
  using F = typename L::F;
  using D = typename Lanes<double, sizeof(F) / sizeof(typename L::Real)>::F;
  // In double: in float, the remainder of a weight of 10,000 would have only 3 digits.
  D x = convert<D>(w);
  const D limit = D{} + 2907270.0;  // 2^22 * log(2)
  x = x > -limit ? x : -limit;
  x = x < limit ? x : limit;
  const D round = D{} + 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to whole numbers
  const D whole = (x * 1.4426950408889634074 + round) - round;
  const D rest = (x - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10;
  const F r = convert<F>(rest);
  exponent = whole;
  // The Taylor series; the error is below the last digit for |r| < 0.35.
  const F r2 = r * r, r4 = r2 * r2;
  const F one = F{} + typename L::Real(1);
  auto c = [](double value) { return F{} + static_cast<typename L::Real>(value); };
  const F p0 = (one + r) + (c(0.5) + r * c(1.0 / 6.0)) * r2;
  const F p4 = (c(1.0 / 24.0) + r * c(1.0 / 120.0)) + (c(1.0 / 720.0) + r * c(1.0 / 5040.0)) * r2;
  F p = p0 + p4 * r4;
  if constexpr (sizeof(typename L::Real) == 8) {
    const F p8 = (c(1.0 / 40320.0) + r * c(1.0 / 362880.0)) +
                 (c(1.0 / 3628800.0) + r * c(1.0 / 39916800.0)) * r2;
    const F p12 = c(1.0 / 479001600.0) + r * c(1.0 / 6227020800.0);
    p = p + (p8 + p12 * r4) * (r4 * r4);
  }
  mantissa = w < c(sizeof(typename L::Real) == 4 ? -3.4028234e38 : -1.79e308) ? F{} : p;
}

/// split_exp_wide() with integer exponents.
template <class L>
ARCGRAD_INLINE void split_exp(typename L::F w, typename L::F& mantissa, typename L::I& exponent) {
  using F = typename L::F;
#ifdef __FMA__
  if constexpr (sizeof(typename L::Real) == 4) {
    // With fused multiply-add the reduction is accurate in float, too: the first difference is
    // exact.
    const F limit = F{} + 2907270.0f;  // 2^22 * log(2)
    F x = w > -limit ? w : -limit;
    x = x < limit ? x : limit;
    const F round = F{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers
    const F whole = (x * 1.44269504f + round) - round;
    const F high_part = _mm256_fnmadd_ps(whole, F{} + 0.693147182f, x);
    const F r = _mm256_fmadd_ps(whole, F{} + 1.90465421e-9f, high_part);
    const F r2 = r * r;
    const F low = 1.0f + r, mid = 0.5f + r * (1.0f / 6.0f);
    const F high =
        (1.0f / 24.0f + r * (1.0f / 120.0f)) + (1.0f / 720.0f + r * (1.0f / 5040.0f)) * r2;
    mantissa = w < F{} - 3.4028234e38f ? F{} : (mid + high * r2) * r2 + low;
    exponent = __builtin_convertvector(whole, typename L::I);
    return;
  }
#endif
  constexpr int kWidth = sizeof(F) / sizeof(typename L::Real);
  typename Lanes<double, kWidth>::F whole;
  split_exp_wide<L>(w, mantissa, whole);
  exponent = __builtin_convertvector(whole, typename L::I);
}

/// Transposes an 8 x 8 matrix.
template <class F>
ARCGRAD_INLINE void transpose8(F (&rows)[8]) {
  for (int round = 0; round < 3; ++round) {
    F mixed[8];
    for (int i = 0; i < 4; ++i) {
      mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      mixed[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; ++i) rows[i] = mixed[i];
  }
}

/// All bits set in the lanes that are NaN or +inf.
template <class L>
ARCGRAD_INLINE typename L::I bad_lanes(typename L::F w) {
  using Real = typename L::Real;
  const typename L::F limit = typename L::F{} + (sizeof(Real) == 4 ? Real(3.4028234663852886e38)
                                                                   : Real(1.7976931348623157e308));
  return ~(w <= limit);
}

/// One bit per lane, of 8 lanes that have all bits set or none.
template <class I>
ARCGRAD_INLINE uint32_t lane_bits(I lanes) {
#ifdef __AVX2__
  if constexpr (sizeof(I) == 32)
    return static_cast<uint32_t>(_mm256_movemask_ps(bits_as<__m256>(lanes)));
#endif
  uint32_t bits = 0;
  for (int l = 0; l < 8; ++l) bits |= lanes[l] != 0 ? uint32_t{1} << l : 0;
  return bits;
}

/// Whether any lane has a bit set.
template <class I>
ARCGRAD_INLINE bool any_lane(I lanes) {
  bool any = false;
  for (size_t k = 0; k < sizeof(I) / sizeof(lanes[0]); ++k) any |= lanes[k] != 0;
  return any;
}

}  // namespace arcgrad::trellis::ARCGRAD_ISA
