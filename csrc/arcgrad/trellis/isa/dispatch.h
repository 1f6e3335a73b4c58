#pragma once

// How inner loops are compiled for several instruction sets, and constants of loops and callers.
//
// A file *_loops.h declares a table of function pointers and, where ARCGRAD_ISA is defined, defines
// the loops in the namespace that ARCGRAD_ISA names. baseline.cpp and avx2.cpp include all of these
// files, each compiled for its own instruction set, so that every table exists once per set.
// ARCGRAD_LOOPS(name) is the table `name` of the best set that the processor supports. To add
// loops, write such a file and include it in both.

#include <cstdint>

#include "arcgrad/runtime/isa.h"

namespace arcgrad::trellis {

/// The most offsets of a banded graph that the `diagonal` kernel can run.
inline constexpr int32_t kMostDiagonals = 6;

/// The exponent of a score of zero.
inline constexpr int32_t kDead = -(1 << 30);

/// The type of exponents that goes with mantissas of type T.
template <class T>
struct ExponentOf {
  using type = int32_t;
};
template <>
struct ExponentOf<double> {
  using type = int64_t;
};
template <class T>
using Exponent = typename ExponentOf<T>::type;

}  // namespace arcgrad::trellis
