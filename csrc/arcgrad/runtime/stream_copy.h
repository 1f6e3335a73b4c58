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
inline constexpr size_t kStreamed = size_t{4} << 20;

/// Copies past the caches. Others see it after a finish_stream().
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

inline void finish_stream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

/// Sets `to[k]` to `f(from[k])`, where `f` also takes several entries as one vector.
template <class T, class F>
void copy_mapped(std::span<const T> from, std::span<T> to, F f) {
  const auto count = static_cast<int64_t>(from.size());
  const T* const in = from.data();
  T* const out = to.data();
  int64_t done = 0;
#ifdef __SSE2__
  if (from.size_bytes() >= kStreamed) {
    using Vector [[gnu::vector_size(16)]] = T;
    constexpr int64_t kWidth = sizeof(Vector) / sizeof(T);
    constexpr int64_t kLine = 64 / sizeof(T), kStep = 4 * kLine, kAhead = 4096 / sizeof(T);
    for (; reinterpret_cast<uintptr_t>(out + done) % sizeof(Vector) != 0; ++done)
      out[done] = f(in[done]);
    for (; done + kAhead + kStep <= count; done += kStep) {
      for (int64_t k = done; k < done + kStep; k += kLine)
        __builtin_prefetch(in + k + kAhead, 0, 0);
      for (int64_t k = done; k < done + kStep; k += kWidth) {
        Vector entries;
        std::memcpy(&entries, in + k, sizeof entries);
        entries = f(entries);
        __m128i bits;
        std::memcpy(&bits, &entries, sizeof entries);
        _mm_stream_si128(reinterpret_cast<__m128i*>(out + k), bits);
      }
    }
    finish_stream();
  }
#endif
#pragma GCC unroll 4
  for (int64_t k = done; k < count; ++k) out[k] = f(in[k]);
}

/// How many entries are made at a time.
inline constexpr size_t kBlockSize = 1024;

/// Fills `out` block by block: `make(begin, block)` sets the entries from `begin` on. What needs
/// several steps takes them while the block is in the cache.
template <class T, class Make>
void write_blocks(std::span<T> out, Make make) {
  constexpr size_t kLine = 64, kPage = 4096;
  if (out.size_bytes() < kStreamed) {
    for (size_t begin = 0; begin < out.size(); begin += kBlockSize)
      make(begin, out.subspan(begin, std::min(kBlockSize, out.size() - begin)));
    return;
  }
  // The first block is shorter if that makes the others begin at a cache line.
  const size_t skip = reinterpret_cast<uintptr_t>(out.data()) % kLine / sizeof(T);
  // A processor takes a load for one of the bytes just stored if both have the same place in their
  // pages, and waits. So blocks are made half a page away from where they go to.
  alignas(kLine) T room[kBlockSize + kPage / sizeof(T)];
  const uintptr_t wanted = reinterpret_cast<uintptr_t>(out.data()) / kLine * kLine + kPage / 2;
  T* const block = room + (wanted - reinterpret_cast<uintptr_t>(room)) % kPage / sizeof(T);
  for (size_t begin = 0, end; begin < out.size(); begin = end) {
    end = std::min(out.size(), begin == 0 ? kBlockSize - skip : begin + kBlockSize);
    make(begin, std::span<T>(block, end - begin));
    if (begin == 0)
      std::copy(block, block + end, out.data());
    else
      stream(block, &out[begin], (end - begin) * sizeof(T));
  }
  finish_stream();
}

}  // namespace arcgrad
