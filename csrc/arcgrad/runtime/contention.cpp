#include "arcgrad/runtime/contention.h"

#include <time.h>

#include <algorithm>
#include <atomic>

namespace arcgrad {
namespace {

/// Loops pause for this many times the delay, of which a time slice counts at most.
constexpr int kPause = 20;
constexpr std::chrono::milliseconds kMostDelay{5};
/// A pause of this length is not made: a single delay changes nothing.
constexpr std::chrono::milliseconds kTolerated{100};
constexpr std::chrono::milliseconds kLongest{1000};

/// When the accumulated pause ends.
std::atomic<Clock::rep> pause_end{0};

}  // namespace

bool is_contended() {
  const Clock::time_point end{Clock::duration(pause_end.load(std::memory_order_relaxed))};
  return end != Clock::time_point() && Clock::now() + kTolerated < end;
}

void report_loop(Clock::duration elapsed, Clock::duration work) {
  const Clock::duration delay = std::min<Clock::duration>(elapsed - work, kMostDelay);
  if (delay < kDelay) return;
  const Clock::time_point now = Clock::now();
  Clock::rep end = pause_end;
  const auto later = [&] {
    const Clock::time_point from = std::max(now, Clock::time_point(Clock::duration(end)));
    return std::min<Clock::time_point>(from + kPause * delay, now + kLongest);
  };
  while (!pause_end.compare_exchange_weak(end, later().time_since_epoch().count())) continue;
}

Clock::duration thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace arcgrad
