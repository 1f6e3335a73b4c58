#pragma once

// The log and tropical semirings.

#include <cmath>
#include <cstdint>
#include <limits>

namespace arcgrad {

inline constexpr double kNegInf = -std::numeric_limits<double>::infinity();

/// How the scores of paths are added: log-sum-exp, or the maximum.
enum class Semiring : uint8_t { log, tropical };

/// log(exp(a) + exp(b)).
inline double logadd(double a, double b) {
  const double high = a > b ? a : b, low = a > b ? b : a;
  return low == kNegInf ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace arcgrad
