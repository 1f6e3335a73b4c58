// Counts forks.

#include "arcgrad/runtime/fork_safe_once.h"

#include <pthread.h>

namespace arcgrad {
namespace {

std::atomic<int32_t> num_forks = 0;

}  // namespace

int32_t fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
  return registered == 0 ? num_forks.load(std::memory_order_relaxed) : 0;
}

}  // namespace arcgrad
