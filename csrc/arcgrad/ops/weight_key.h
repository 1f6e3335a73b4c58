#pragma once

// Equality of weights for the comparison ops.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace arcgrad {

/// A key that is the same for two weights if and only if they are equal or both NaN. 0 equals -0.
inline uint64_t weight_key(double weight) {
  if (std::isnan(weight)) weight = std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<uint64_t>(weight == 0 ? 0.0 : weight);
}

}  // namespace arcgrad
