#pragma once

// Ctrl-C in long loops.

#include <algorithm>
#include <cstdint>

#include "arcgrad/runtime/parallel.h"

namespace arcgrad {

/// Calls poll_interrupt() in a loop of short steps, so that the check costs next to nothing:
/// `poll()` or `poll(work)` in each step. A unit of work takes about 1 to 100 ns.
class InterruptPoll {
 public:
  void operator()(int64_t work = 1) {
    if ((left_ -= work) >= 0) [[likely]]
      return;
    left_ = kBetween;
    poll_interrupt();
  }

 private:
  static constexpr int64_t kBetween = int64_t{1} << 16;
  int64_t left_ = kBetween;
};

/// std::sort that can be interrupted.
template <class Values>
void interruptible_sort(Values& values) {
  InterruptPoll poll;
  std::sort(values.begin(), values.end(), [&poll](const auto& a, const auto& b) {
    poll();
    return a < b;
  });
}

}  // namespace arcgrad
