#pragma once

// Notices that other programs keep the processors busy, so that loops stay on their own thread.
//
// A thread that the system does not run, or that it stops in the middle of a loop, delays the loop
// by whole time slices of milliseconds, often a hundred times the loop itself. No wait can avoid
// that, because the delayed thread holds part of the result. So each loop compares its time with
// the sum of the working times of its threads, which is what one thread would have taken. If
// several threads took longer, and that often, loops run on one thread for 20 times the difference,
// so that delays cost at most 5 % in the long run.
//
// Cost: two clocks per thread and loop.

#include <chrono>

namespace arcgrad {

using Clock = std::chrono::steady_clock;

/// A delay that is not noise: less than a time slice, but more than it takes to wake a thread.
inline constexpr std::chrono::microseconds kDelay{200};

/// Whether loops should run on their own thread, because threads were delayed a short time ago.
bool is_contended();
/// Reports a loop on several threads: how long it took, and the sum of the times in which its
/// threads worked.
void report_loop(Clock::duration elapsed, Clock::duration work);

/// The processor time of the calling thread.
Clock::duration thread_time();

}  // namespace arcgrad
