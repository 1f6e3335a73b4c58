#pragma once

#include <cstdint>
#include <optional>
#include <random>

namespace arcgrad {

/// Random numbers that are the same everywhere for the same seed.
class Random {
 public:
  explicit Random(std::optional<uint64_t> seed) : engine_(seed ? *seed : std::random_device{}()) {}
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Uniform below `count`.
  size_t below(size_t count) { return static_cast<size_t>(uniform() * static_cast<double>(count)); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace arcgrad
