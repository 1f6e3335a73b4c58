#include "arcgrad/runtime/isa.h"

#include <atomic>

#ifdef ARCGRAD_AVX2
#include <cpuid.h>
#endif

namespace arcgrad {
namespace {

std::atomic<bool> is_forced{false};

// Asks the processor itself: the builtins of gcc need a runtime library that zig's clang lacks.
bool has_avx2() {
#ifdef ARCGRAD_AVX2
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned needed = bit_FMA | bit_OSXSAVE;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & needed) != needed) return false;
  // The operating system must save the vector registers, too.
  unsigned saved = 0;
  __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
  if ((saved & 6u) != 6u) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) != 0;
#else
  return false;
#endif
}

}  // namespace

bool use_avx2() {
  static const bool has = has_avx2();
  return has && !is_forced.load(std::memory_order_relaxed);
}

void force_baseline(bool force) { is_forced = force; }

}  // namespace arcgrad
