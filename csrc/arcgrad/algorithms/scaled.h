#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace arcgrad {

/// A positive number as mantissa * 2^exponent with the mantissa in [1, 2), or zero as 0 * 2^-inf.
///
/// Sums of path scores are kept in this form: adding needs no logarithm, and no score is so high or
/// so low that it is lost. The exponent is a whole number, and at most kMost, which stands for
/// infinity.
struct Scaled {
  static constexpr double kMost = std::numeric_limits<double>::max();

  double mantissa = 0.0;
  double exponent = -std::numeric_limits<double>::infinity();

  static constexpr Scaled one() { return {1.0, 0.0}; }
  bool is_zero() const { return mantissa == 0.0; }
};

inline constexpr double kLog2e = 1.4426950408889634074;
/// log(2) in two parts: products of the first with whole numbers below 2^21 are exact.
inline constexpr double kLn2High = 6.93147180369123816490e-01;
inline constexpr double kLn2Low = 1.90821492927058770002e-10;

/// 2^exponent for a whole number of at most 1023; 0 below -1022.
inline double pow2(double exponent) {
  // Adding 2^52 leaves the whole number in the low bits of the double, ready to be shifted.
  const double biased = std::max(exponent, -1023.0) + (1023.0 + 4503599627370496.0);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(biased) << 52);
}

/// The same number with the mantissa back in [1, 2). `sum` is positive and normal.
inline Scaled renormalize(double sum, double exponent) {
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  const double shift = static_cast<double>(static_cast<int32_t>(bits >> 52) - 1023);
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  return {std::bit_cast<double>((bits & kFraction) | (uint64_t{1023} << 52)), exponent + shift};
}

/// The natural logarithm.
inline double log(const Scaled& x) {
  if (x.is_zero()) return -std::numeric_limits<double>::infinity();
  if (x.exponent >= Scaled::kMost) return std::numeric_limits<double>::infinity();
  return x.exponent * kLn2High + (x.exponent * kLn2Low + std::log(x.mantissa));
}

/// exp(weight[k]) = mantissa[k] * 2^exponent[k], with mantissas about 1, for `count` weights. A
/// weight of -inf has exponent -inf. Uses wide vectors where the processor has them.
void split_exp(const double* weight, int64_t count, double* mantissa, double* exponent);

/// The same with exponents between -limit and limit, and mantissa 0 for a weight of -inf. False if
/// a weight is NaN or +inf.
template <class T>
bool bounded_exp(const T* weight, int64_t count, double limit, double* mantissa, double* exponent);

/// exp(weight[k]) as it is. False if a weight is neither -inf nor at most kPlainExp in size.
template <class T>
bool plain_exp(const T* weight, int64_t count, double* out);
inline constexpr double kPlainExp = 170.0;

}  // namespace arcgrad
