#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace arcgrad {

/// How many forks led to this process since the library was loaded.
int32_t fork_generation();

/// Runs an initialization once, at the first call; concurrent calls wait for it. Unlike
/// std::call_once, it is safe after fork: a child forked in the middle of an initialization has no
/// thread that would finish it, so the child runs it again.
class ForkSafeOnce {
 public:
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  template <class Make>
  void call(const Make& make) {
    if (is_done()) return;
    std::lock_guard lock(generation_ == fork_generation() ? mutex_ : forked_mutex_);
    if (is_done()) return;
    make();
    is_done_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> is_done_ = false;
  const int32_t generation_ = fork_generation();
  std::mutex mutex_, forked_mutex_;
};

}  // namespace arcgrad
