#include "arcgrad/runtime/isa.h"

#include <atomic>

namespace arcgrad {
namespace {

std::atomic<bool> is_forced{false};

bool has_avx2() {
#ifdef ARCGRAD_AVX2
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
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
