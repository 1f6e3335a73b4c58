#include "arcgrad/scaled.h"

namespace arcgrad {
namespace {

/// A plain loop that compilers vectorise; inlined into one function per instruction set.
[[gnu::always_inline]] inline void split_exp_loop(const double* __restrict weight, int64_t count,
                                                  double* __restrict mantissa,
                                                  double* __restrict exponent) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to whole numbers
  for (int64_t k = 0; k < count; ++k) {
    const double w = weight[k];
    const double y = w * kLog2e;
    const double whole = std::abs(y) < 1e15 ? (y + kRound) - kRound : y;
    double r = (w - whole * kLn2High) - whole * kLn2Low;
    r = r > 0.35 ? 0.35 : (r > -0.35 ? r : -0.35);  // also turns the NaN of -inf into a number
    // The Taylor series in pairs; its remainder is below 1e-17 for |r| < 0.35.
    const double r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
    const double p0 = (1.0 + r) + (0.5 + r * (1.0 / 6.0)) * r2;
    const double p4 = (1.0 / 24.0 + r * (1.0 / 120.0)) + (1.0 / 720.0 + r * (1.0 / 5040.0)) * r2;
    const double p8 =
        (1.0 / 40320.0 + r * (1.0 / 362880.0)) + (1.0 / 3628800.0 + r * (1.0 / 39916800.0)) * r2;
    const double p12 = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
    mantissa[k] = (p0 + p4 * r4) + (p8 + p12 * r4) * r8;
    exponent[k] = whole;
  }
}

using SplitExp = void (*)(const double*, int64_t, double*, double*);

void split_exp_baseline(const double* weight, int64_t count, double* mantissa, double* exponent) {
  split_exp_loop(weight, count, mantissa, exponent);
}

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("avx2,fma")]] void split_exp_avx2(const double* weight, int64_t count,
                                                double* mantissa, double* exponent) {
  split_exp_loop(weight, count, mantissa, exponent);
}

SplitExp choose() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? split_exp_avx2
                                                                         : split_exp_baseline;
}
#else
SplitExp choose() { return split_exp_baseline; }
#endif

}  // namespace

void split_exp(const double* weight, int64_t count, double* mantissa, double* exponent) {
  static const SplitExp chosen = choose();
  chosen(weight, count, mantissa, exponent);
}

}  // namespace arcgrad
