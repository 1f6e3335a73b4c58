#pragma once

// Hash functions for names, checksums and the states of a search.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace arcgrad {

/// A bijection of 64 bits in which every bit of the input changes about half of the output.
inline uint64_t mix_bits(uint64_t x) {
  x ^= x >> 32U;
  x *= 0xd6e8feb86659fd93U;
  x ^= x >> 32U;
  x *= 0xd6e8feb86659fd93U;
  return x ^ (x >> 32U);
}

/// A hash of a sequence of symbols with one more symbol.
inline uint64_t extend_history(uint64_t history, int32_t symbol) {
  return mix_bits(history ^ (uint64_t{static_cast<uint32_t>(symbol)} + 1)) + 0x9e3779b97f4a7c15U;
}

/// A hash of bytes: four independent sums of products, so that it reads several gigabytes a second.
inline uint64_t hash_bytes(const char* data, size_t size) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15U;
  const auto word = [](const char* from) {
    uint64_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  uint64_t sum = size * kFactor;
  if (size >= 32) {
    uint64_t lanes[4] = {1, 2, 3, 4};
    for (; size >= 32; data += 32, size -= 32)
      for (size_t k = 0; k < 4; ++k) {
        const uint64_t x = (lanes[k] ^ word(data + 8 * k)) * kFactor;
        lanes[k] = x ^ (x >> 29U);
      }
    for (const uint64_t lane : lanes) sum = mix_bits(sum ^ lane);
  }
  for (; size >= 8; data += 8, size -= 8) sum = mix_bits(sum ^ word(data));
  uint64_t rest = 0;
  std::memcpy(&rest, data, size);
  return mix_bits(sum ^ rest);
}

}  // namespace arcgrad
