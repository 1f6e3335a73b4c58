#pragma once

/// The threads of the OpenMP library that the program has loaded, if any.
///
/// They go on looking for work for some milliseconds after each loop, so after an operation of a
/// library that uses them, such as torch, other threads find the processors taken.
namespace arcgrad::openmp {

using Body = void(void* data, int thread, int num_threads);

/// Runs `body` on each of `num_threads` threads, of which this one is number 0, and returns when
/// all of them are done. There may be fewer, if the library gives fewer. Returns false, and runs
/// nothing, where those threads cannot or should not be used. `body` must not throw.
bool run(int num_threads, Body* body, void* data);

}  // namespace arcgrad::openmp
