#include "arcgrad/algorithms/scaled.h"

namespace arcgrad {
namespace {

/// exp(weight) = the returned number * 2^whole. Written so that compilers vectorise loops over it.
[[gnu::always_inline]] inline double split(double weight, double& whole) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to whole numbers
  const double y = weight * kLog2e;
  whole = std::abs(y) < 1e15 ? (y + kRound) - kRound : y;
  double r = (weight - whole * kLn2High) - whole * kLn2Low;
  r = r > 0.35 ? 0.35 : (r > -0.35 ? r : -0.35);  // also turns the NaN of -inf into a number
  // The Taylor series in pairs; its remainder is below 1e-17 for |r| < 0.35.
  const double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
  const double p0 = (1.0 + r) + (0.5 + r * (1.0 / 6.0)) * r2;
  const double p4 = (1.0 / 24.0 + r * (1.0 / 120.0)) + (1.0 / 720.0 + r * (1.0 / 5040.0)) * r2;
  const double p8 =
      (1.0 / 40320.0 + r * (1.0 / 362880.0)) + (1.0 / 3628800.0 + r * (1.0 / 39916800.0)) * r2;
  const double p12 = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
  return (p0 + p4 * r4) + (p8 + p12 * r4) * r8;
}

// One function per instruction set, into which the loop is inlined.

[[gnu::always_inline]] inline void split_exp_loop(const double* __restrict weight, int64_t count,
                                                  double* __restrict mantissa,
                                                  double* __restrict exponent) {
  for (int64_t k = 0; k < count; ++k) mantissa[k] = split(weight[k], exponent[k]);
}

template <class T>
[[gnu::always_inline]] inline bool bounded_exp_loop(const T* __restrict weight, int64_t count,
                                                    double limit, double* __restrict mantissa,
                                                    double* __restrict exponent) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  int64_t bad = 0;  // as wide as the numbers, so that the loop is done in vectors
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

template <class T>
[[gnu::always_inline]] inline bool plain_exp_loop(const T* __restrict weight, int64_t count,
                                                  double* __restrict out) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  int64_t bad = 0;  // as wide as the numbers, so that the loop is done in vectors
  for (int64_t k = 0; k < count; ++k) {
    const double w = weight[k];
    double whole;
    const double mantissa = split(w, whole);
    out[k] = mantissa * pow2(whole);
    bad |= std::abs(w) <= kPlainExp ? 0 : w == -kInf ? 0 : 1;
  }
  return bad == 0;
}

void split_exp_baseline(const double* weight, int64_t count, double* mantissa, double* exponent) {
  split_exp_loop(weight, count, mantissa, exponent);
}
template <class T>
bool bounded_exp_baseline(const T* weight, int64_t count, double limit, double* mantissa,
                          double* exponent) {
  return bounded_exp_loop(weight, count, limit, mantissa, exponent);
}
template <class T>
bool plain_exp_baseline(const T* weight, int64_t count, double* out) {
  return plain_exp_loop(weight, count, out);
}

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("avx2,fma")]] void split_exp_avx2(const double* weight, int64_t count,
                                                double* mantissa, double* exponent) {
  split_exp_loop(weight, count, mantissa, exponent);
}
template <class T>
[[gnu::target("avx2,fma")]] bool bounded_exp_avx2(const T* weight, int64_t count, double limit,
                                                  double* mantissa, double* exponent) {
  return bounded_exp_loop(weight, count, limit, mantissa, exponent);
}
template <class T>
[[gnu::target("avx2,fma")]] bool plain_exp_avx2(const T* weight, int64_t count, double* out) {
  return plain_exp_loop(weight, count, out);
}

const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
constexpr bool has_avx2 = false;
constexpr auto split_exp_avx2 = split_exp_baseline;
template <class T>
constexpr auto bounded_exp_avx2 = bounded_exp_baseline<T>;
template <class T>
constexpr auto plain_exp_avx2 = plain_exp_baseline<T>;
#endif

}  // namespace

void split_exp(const double* weight, int64_t count, double* mantissa, double* exponent) {
  (has_avx2 ? split_exp_avx2 : split_exp_baseline)(weight, count, mantissa, exponent);
}

template <class T>
bool bounded_exp(const T* weight, int64_t count, double limit, double* mantissa, double* exponent) {
  return (has_avx2 ? bounded_exp_avx2<T> : bounded_exp_baseline<T>)(weight, count, limit, mantissa,
                                                                    exponent);
}
template bool bounded_exp(const float*, int64_t, double, double*, double*);
template bool bounded_exp(const double*, int64_t, double, double*, double*);

template <class T>
bool plain_exp(const T* weight, int64_t count, double* out) {
  return (has_avx2 ? plain_exp_avx2<T> : plain_exp_baseline<T>)(weight, count, out);
}
template bool plain_exp(const float*, int64_t, double*);
template bool plain_exp(const double*, int64_t, double*);

}  // namespace arcgrad
