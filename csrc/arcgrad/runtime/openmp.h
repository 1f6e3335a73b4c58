#pragma once

// Runs loops on the threads of the OpenMP library that the program has loaded, if any.
//
// After each loop, OpenMP threads spin for some milliseconds. After an op of torch, for example, a
// second thread pool would compete with them for the processors, so their threads are used instead,
// but only while they spin: OpenMP makes its caller wait for all of its threads, also for those
// that find no work, and a thread that sleeps may wait for a processor for several time slices.

#include <cstdint>

namespace arcgrad::openmp {

using Body = void(void* data, int thread, int num_threads);

/// Runs `body` on `num_threads` threads, or fewer if OpenMP provides fewer, and returns true when
/// all of them are done. The calling thread is number 0. Returns false without running anything if
/// the OpenMP threads cannot be used. `body` must not throw.
bool run(int num_threads, Body* body, void* data);

/// For tests: how many loops ran on OpenMP threads.
int64_t num_loops();

}  // namespace arcgrad::openmp
