#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace arcgrad {

/// Runs `body(i)` for each i below `count` on the threads of the one pool and on this one.
///
/// All of them run, and then the exception of the lowest index is thrown again; unless one of them
/// is interrupted, which stops the others. A call from inside another runs inline, so nesting
/// cannot deadlock. Recording is on or off in the threads as it is in the caller.
void parallel_for(size_t count, const std::function<void(size_t)>& body);

/// The same on this thread alone.
void serial_for(size_t count, const std::function<void(size_t)>& body);

/// For each round below `rounds` in turn: `part(round, i)` for each i below `parts`, on several
/// threads, and when all of them are done `close(round)` on one. For rounds so short that waking
/// threads for each would take longer: threads wait for each other without sleeping.
void parallel_rounds(size_t rounds, size_t parts, const std::function<void(size_t, size_t)>& part,
                     const std::function<void(size_t)>& close);

/// How many threads parallel_for uses, this one included. By default ARCGRAD_NUM_THREADS, else
/// OMP_NUM_THREADS, else the processors this process may use. In a forked child or another worker,
/// ARCGRAD_NUM_THREADS, else one.
int get_num_threads();
/// Throws unless `num_threads` is at least 1.
void set_num_threads(int num_threads);
/// Sets a function that says whether this process works for another one, beside others like it. It
/// is asked once, at the first need of the default.
void set_worker_check(bool (*check)());
/// Throws if ARCGRAD_NUM_THREADS is set but is no number of threads; it is then ignored.
void check_environment();

/// Sets a function that throws if the user wants to interrupt what is running, such as by Ctrl-C.
/// Long computations call it now and then on the thread that started them.
void set_interrupt_check(void (*check)());
/// For long loops: throws if the user interrupted. All threads of a parallel_for then stop.
void poll_interrupt();
/// While an exception is handled inside a call of parallel_for: ends that loop with it. No further
/// calls are started.
[[noreturn]] void rethrow_and_stop();

/// Throws the current exception again with `op (element index of count): ` in front of its text,
/// in place of `op: ` where the text starts with that.
[[noreturn]] void rethrow_for_element(const std::string& op, size_t index, size_t count);

}  // namespace arcgrad
