#pragma once

// Lazy initialization that is safe with threads and with fork.
//
// A forked child has only the thread that called fork. If another thread of the parent was inside
// an initialization, its mutex stays locked in the child forever, and std::call_once would wait for
// it. So a ForkSafeOnce has a second mutex for processes that were forked after it was made, and a
// child runs an unfinished initialization again from the start.
//
// A signal handler may ask for the value while its own thread computes it. It then computes the
// value itself, so the mutexes are recursive.
//
// Invariant: `is_done_` is set only after an initialization has returned. The initialization must
// therefore be repeatable; one that polls for signals must not replace a value that is_done() when
// it returns. Not covered: a child that forks again during its own second run.
//
// Cost: once it is done, one load with acquire order.

#include <atomic>
#include <cstdint>
#include <mutex>

namespace arcgrad {

/// The number of forks between the process that loaded the library and this one.
int32_t fork_generation();

/// Runs an initialization once, at the first call; concurrent calls wait for it.
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
  std::recursive_mutex mutex_, forked_mutex_;
};

}  // namespace arcgrad
