#pragma once

// The default number of threads, from the environment and the processors of the process.

namespace arcgrad {

inline constexpr int kMaxThreads = 4096;

/// The number of processors that this process may use, at least 1: those of its affinity mask, and
/// no more than the CPU quota of its control groups.
int usable_processors();

/// ARCGRAD_NUM_THREADS if it is set. Else 1 in a forked child or another worker process, since
/// several of them run at the same time. Else OMP_NUM_THREADS, at most usable_processors(). Else
/// usable_processors().
int default_num_threads();

/// Sets a function that says whether this process is a worker of another one.
void set_worker_check(bool (*check)());

/// Throws if ARCGRAD_NUM_THREADS is set but is not a number of threads. The default ignores it
/// then.
void check_environment();

}  // namespace arcgrad
