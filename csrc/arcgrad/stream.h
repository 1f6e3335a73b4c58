#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace arcgrad {

/// From this size on, new arrays are written past the caches: they would not stay there, and
/// reading their old content from memory first would take as long as writing.
inline constexpr size_t kStreamed = size_t{16} << 20;

/// Copies past the caches. Others see it after a finish_stream().
inline void stream(const void* from, void* to, size_t bytes) {
  const auto* in = static_cast<const char*>(from);
  auto* out = static_cast<char*>(to);
#ifdef __SSE2__
  constexpr size_t kWidth = 16;
  const size_t before = std::min(bytes, -reinterpret_cast<uintptr_t>(out) % kWidth);
  std::memcpy(out, in, before);
  for (in += before, out += before, bytes -= before; bytes >= kWidth;
       in += kWidth, out += kWidth, bytes -= kWidth)
    _mm_stream_si128(reinterpret_cast<__m128i*>(out),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
#endif
  std::memcpy(out, in, bytes);
}

inline void finish_stream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

/// Fills `out` block by block: `make(begin, block)` sets the entries from `begin` on. What needs
/// several steps takes them while the block is in the cache.
template <class T, class Make>
void write_blocks(std::span<T> out, Make make) {
  constexpr size_t kBlock = 1024, kLine = 64;
  if (out.size_bytes() < kStreamed) {
    for (size_t begin = 0; begin < out.size(); begin += kBlock)
      make(begin, out.subspan(begin, std::min(kBlock, out.size() - begin)));
    return;
  }
  alignas(kLine) T block[kBlock];
  // The first block is shorter if that makes the others begin at a cache line.
  const size_t skip = reinterpret_cast<uintptr_t>(out.data()) % kLine / sizeof(T);
  for (size_t begin = 0, end; begin < out.size(); begin = end) {
    end = std::min(out.size(), begin == 0 ? kBlock - skip : begin + kBlock);
    make(begin, std::span<T>(block, end - begin));
    if (begin == 0)
      std::copy(block, block + end, out.data());
    else
      stream(block, &out[begin], (end - begin) * sizeof(T));
  }
  finish_stream();
}

}  // namespace arcgrad
