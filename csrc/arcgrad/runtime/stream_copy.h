#pragma once

// Copies with non-temporal stores.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace arcgrad {

/// Copies with non-temporal stores, which bypass the cache: for large results that would evict data
/// in use. Call finish_stream() before another thread reads the copy.
inline void stream(const void* from, void* to, size_t bytes) {
  const auto* in = static_cast<const char*>(from);
  auto* out = static_cast<char*>(to);
#ifdef __SSE2__
  constexpr size_t kWidth = 16, kStep = 4 * kWidth;
  const auto copy = [](const char* from, char* to) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  };
  const size_t before = std::min(bytes, -reinterpret_cast<uintptr_t>(out) % kWidth);
  std::memcpy(out, in, before);
  in += before, out += before, bytes -= before;
  for (; bytes >= kStep; in += kStep, out += kStep, bytes -= kStep)
    for (size_t i = 0; i < kStep; i += kWidth) copy(in + i, out + i);
  for (; bytes >= kWidth; in += kWidth, out += kWidth, bytes -= kWidth) copy(in, out);
#endif
  std::memcpy(out, in, bytes);
}

/// Orders the stores of stream() before later stores of this thread.
inline void finish_stream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace arcgrad
