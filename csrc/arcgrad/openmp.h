#pragma once

/// The threads of the OpenMP library that the program has loaded, if any.
///
/// They go on looking for work for some milliseconds after each loop, so after an operation of a
/// library that uses them, such as torch, other threads find the processors taken.
namespace arcgrad::openmp {

/// Runs `body(data, size)` on each of `size` threads, this one included, and returns when all of
/// them are done. `size` is `num_threads`, or fewer if the library gives fewer. Returns false, and
/// runs nothing, where those threads cannot or should not be used. `body` must not throw.
bool run(int num_threads, void (*body)(void* data, int size), void* data);

}  // namespace arcgrad::openmp
