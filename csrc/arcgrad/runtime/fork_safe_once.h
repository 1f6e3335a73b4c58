#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace arcgrad {

/// Whether an op leaves the arcs and weights of so large a result to whoever first looks at them.
/// Such arrays go at the speed of memory, so a chain of ops that writes only the last of them saves
/// more than the bookkeeping costs.
bool is_for_later(int64_t num_arcs);
/// For tests: whether small results are put off as well.
void force_later(bool force);

/// How often this process and those it comes from were forked, as far as they loaded this library.
int32_t fork_generation();

/// Does something when it is first asked for; others that ask meanwhile wait. Unlike with
/// std::call_once, a process forked while a thread of its parent was at it does not wait for that
/// thread, which it does not have, but does it again.
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

/// What is put off may depend on other things that are, so many of them on top of each other.
inline constexpr int32_t kMaxLater = 8;

}  // namespace arcgrad
