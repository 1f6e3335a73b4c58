#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace arcgrad {

/// A number that two weights share if and only if they are equal, where NaN equals NaN.
inline uint64_t weight_key(double weight) {
  if (std::isnan(weight)) weight = std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<uint64_t>(weight == 0 ? 0.0 : weight);
}

}  // namespace arcgrad
