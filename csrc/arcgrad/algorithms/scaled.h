#pragma once

// Arithmetic of the log semiring without logarithms: a path score exp(s) is mantissa * 2^exponent,
// as in the scaled forward algorithm (Rabiner 1989), but with a scale per number. So a product adds
// exponents, and a sum shifts the smaller mantissa; no score overflows or underflows. Weights enter
// by a vectorized exp, which splits x into round(x / log 2) and a rest of at most log(2) / 2, whose
// exponential is a Taylor polynomial (Cody-Waite reduction).

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "arcgrad/algorithms/scaled_loops.h"

namespace arcgrad {

/// A positive number as mantissa * 2^exponent with the mantissa in [1, 2), or zero as 0 * 2^-inf.
/// The exponent is an integer of at most kMost, which stands for infinity.
struct Scaled {
  static constexpr double kMost = std::numeric_limits<double>::max();

  double mantissa = 0.0;
  double exponent = -std::numeric_limits<double>::infinity();

  static constexpr Scaled one() { return {1.0, 0.0}; }
  bool is_zero() const { return mantissa == 0.0; }
};

/// log(2) in two parts: products of the first with integers below 2^21 are exact.
inline constexpr double kLn2High = 6.93147180369123816490e-01;
inline constexpr double kLn2Low = 1.90821492927058770002e-10;

/// 2^exponent for an integer of at most 1023; 0 below -1022.
inline double pow2(double exponent) {
  // Adding 2^52 leaves the integer in the low bits of the double, ready to be shifted.
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

/// exp(weight[k]) = mantissa[k] * 2^exponent[k], with mantissas near 1, for `count` weights. A
/// weight of -inf has exponent -inf.
void split_exp(const double* weight, int64_t count, double* mantissa, double* exponent);

/// The same with exponents clamped to [-limit, limit], and mantissa 0 for a weight of -inf. Returns
/// false if a weight is NaN or +inf.
template <class T>
bool bounded_exp(const T* weight, int64_t count, double limit, double* mantissa, double* exponent);

/// The exponentials as plain numbers. Returns false if a weight is not -inf and its magnitude is
/// not at most kPlainExp.
template <class T>
bool plain_exp(const T* weight, int64_t count, double* out);

}  // namespace arcgrad
