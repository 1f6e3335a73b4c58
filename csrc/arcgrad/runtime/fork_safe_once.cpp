#include "arcgrad/runtime/fork_safe_once.h"

#include <pthread.h>

namespace arcgrad {
namespace {

constexpr int64_t kLeastArcs = int64_t{1} << 16;
std::atomic<bool> is_forced = false;
std::atomic<int32_t> num_forks = 0;

}  // namespace

bool is_for_later(int64_t num_arcs) {
  return num_arcs >= kLeastArcs || is_forced.load(std::memory_order_relaxed);
}

void force_later(bool force) { is_forced = force; }

int32_t fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
  return registered == 0 ? num_forks.load(std::memory_order_relaxed) : 0;
}

}  // namespace arcgrad
