#pragma once

#include <cstdint>

namespace arcgrad {

/// The largest magnitude of a weight whose exponential is computed without a separate exponent.
inline constexpr double kPlainExp = 170.0;

// See scaled.h.
namespace baseline {
void split_exp(const double* weight, int64_t count, double* mantissa, double* exponent);
template <class T>
bool bounded_exp(const T* weight, int64_t count, double limit, double* mantissa, double* exponent);
template <class T>
bool plain_exp(const T* weight, int64_t count, double* out);
}  // namespace baseline
namespace avx2 {
void split_exp(const double* weight, int64_t count, double* mantissa, double* exponent);
template <class T>
bool bounded_exp(const T* weight, int64_t count, double limit, double* mantissa, double* exponent);
template <class T>
bool plain_exp(const T* weight, int64_t count, double* out);
}  // namespace avx2

}  // namespace arcgrad

#ifdef ARCGRAD_ISA
// Compiled once per instruction set. No inline function from elsewhere may be used here: the linker
// could keep the copy that was compiled for AVX2 and use it everywhere.

namespace arcgrad::ARCGRAD_ISA {

/// exp(weight) = the returned number * 2^whole. Written so that compilers vectorize loops over it.
[[gnu::always_inline]] inline double split(double weight, double& whole) {
  constexpr double kLog2e = 1.4426950408889634074;
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double y = weight * kLog2e;
  whole = __builtin_fabs(y) < 1e15 ? (y + kRound) - kRound : y;
  double r = (weight - whole * kLn2High) - whole * kLn2Low;
  r = r > 0.35 ? 0.35 : (r > -0.35 ? r : -0.35);  // also turns the NaN of -inf into a number
  // The Taylor series, evaluated in pairs; its remainder is below 1e-17 for |r| < 0.35.
  const double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
  const double p0 = (1.0 + r) + (0.5 + r * (1.0 / 6.0)) * r2;
  const double p4 = (1.0 / 24.0 + r * (1.0 / 120.0)) + (1.0 / 720.0 + r * (1.0 / 5040.0)) * r2;
  const double p8 =
      (1.0 / 40320.0 + r * (1.0 / 362880.0)) + (1.0 / 3628800.0 + r * (1.0 / 39916800.0)) * r2;
  const double p12 = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
  return (p0 + p4 * r4) + (p8 + p12 * r4) * r8;
}

/// pow2() of scaled.h.
[[gnu::always_inline]] inline double power_of_two(double exponent) {
  const double biased = (exponent > -1023.0 ? exponent : -1023.0) + (1023.0 + 4503599627370496.0);
  uint64_t bits;
  __builtin_memcpy(&bits, &biased, sizeof(bits));
  bits <<= 52;
  double out;
  __builtin_memcpy(&out, &bits, sizeof(out));
  return out;
}

void split_exp(const double* __restrict weight, int64_t count, double* __restrict mantissa,
               double* __restrict exponent) {
  for (int64_t k = 0; k < count; ++k) mantissa[k] = split(weight[k], exponent[k]);
}

template <class T>
bool bounded_exp(const T* __restrict weight, int64_t count, double limit,
                 double* __restrict mantissa, double* __restrict exponent) {
  constexpr double kInf = __builtin_inf();
  int64_t bad = 0;  // as wide as the numbers, so that the loop is vectorized
  for (int64_t k = 0; k < count; ++k) {
    const double w = weight[k];
    double whole;
    const double m = split(w, whole);
    bad |= w < kInf ? 0 : 1;
    mantissa[k] = w == -kInf ? 0.0 : m;
    const double high = whole < -limit ? -limit : whole;
    exponent[k] = high > limit ? limit : high;
  }
  return bad == 0;
}
template bool bounded_exp(const float*, int64_t, double, double*, double*);
template bool bounded_exp(const double*, int64_t, double, double*, double*);

template <class T>
bool plain_exp(const T* __restrict weight, int64_t count, double* __restrict out) {
  constexpr double kInf = __builtin_inf();
  int64_t bad = 0;  // as wide as the numbers, so that the loop is vectorized
  for (int64_t k = 0; k < count; ++k) {
    const double w = weight[k];
    double whole;
    const double mantissa = split(w, whole);
    out[k] = mantissa * power_of_two(whole);
    bad |= __builtin_fabs(w) <= kPlainExp ? 0 : w == -kInf ? 0 : 1;
  }
  return bad == 0;
}
template bool plain_exp(const float*, int64_t, double*);
template bool plain_exp(const double*, int64_t, double*);

}  // namespace arcgrad::ARCGRAD_ISA
#endif
