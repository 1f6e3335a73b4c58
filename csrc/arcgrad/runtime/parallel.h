#pragma once

// Loops on several threads, interruption by the user, and errors that name the element of a batch.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace arcgrad {

/// Runs `body(i)` for each i below `count` on the calling thread and the threads of the pool.
///
/// Every call is made even if others throw; afterwards the exception of the lowest index is thrown
/// again. An interruption by the user stops all of them. A nested parallel_for runs on its calling
/// thread, so nesting cannot deadlock. The calls record ops on the tape if the caller does. While
/// other programs keep the processors busy, all calls are made on the calling thread.
void parallel_for(size_t count, const std::function<void(size_t)>& body);
/// The same for a `body` that may sleep or wait for a lock. It always uses all threads.
void parallel_for_blocking(size_t count, const std::function<void(size_t)>& body);

/// The same on the calling thread only.
void serial_for(size_t count, const std::function<void(size_t)>& body);

/// Runs `rounds` rounds one after the other. A round calls `part(round, i)` for each i below
/// `parts` on several threads, and then `close(round)` on one of them. Threads spin between rounds,
/// so this is for rounds that take less time than waking a thread.
void parallel_rounds(size_t rounds, size_t parts, const std::function<void(size_t, size_t)>& part,
                     const std::function<void(size_t)>& close);

/// How many threads parallel_for uses, including the calling one. See thread_count.cpp for the
/// default.
int get_num_threads();
/// Throws unless `num_threads` is between 1 and 4096.
void set_num_threads(int num_threads);

/// Sets a function that throws if the user has interrupted the program, for example with Ctrl-C.
/// Long computations call it at intervals on the thread that started them.
void set_interrupt_check(void (*check)());
/// For long loops: throws if the user has interrupted the program. All threads of a parallel_for
/// then stop.
void poll_interrupt();
/// The same after a system call that a signal ended: without waiting for the next interval.
void poll_interrupt_now();
/// While one exists, poll_interrupt() does nothing in its thread. For code that holds a lock: the
/// check takes the GIL, and runs handlers of signals, which may wait for that lock.
class DeferredInterrupts {
 public:
  DeferredInterrupts() { ++depth_; }
  ~DeferredInterrupts() { --depth_; }
  DeferredInterrupts(const DeferredInterrupts&) = delete;
  static bool is_active() { return depth_ > 0; }

 private:
  inline static thread_local int depth_ = 0;
};
/// For an exception handler inside `body` of parallel_for: ends the loop with the current
/// exception. No further calls are started.
[[noreturn]] void rethrow_and_stop();

/// Throws the current exception again with the prefix `op (element index of count): `, which
/// replaces `op: ` if the text starts with it.
[[noreturn]] void rethrow_for_element(const std::string& op, size_t index, size_t count);

}  // namespace arcgrad
