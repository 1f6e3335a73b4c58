#pragma once

// The random number generator of the ops that sample.

#include <cstdint>
#include <optional>
#include <random>

namespace arcgrad {

/// Random numbers that depend only on the seed, on every platform. Without a seed they are
/// different each time.
class Random {
 public:
  explicit Random(std::optional<uint64_t> seed) : engine_(seed ? *seed : std::random_device{}()) {}
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Uniform in 0, ..., count - 1.
  size_t below(size_t count) { return static_cast<size_t>(uniform() * static_cast<double>(count)); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace arcgrad
