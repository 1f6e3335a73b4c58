#pragma once

#include <cstdint>

#include "arcgrad/runtime/isa.h"

// The inner loops of the kernels are compiled once per instruction set (baseline.cpp, avx2.cpp) and
// reached through tables of functions: `ARCGRAD_LOOPS(name)` is the table `name` to use.

namespace arcgrad::trellis {

/// The most distances that arcs of a diagonal form may span.
inline constexpr int32_t kMostDiagonals = 6;

/// The exponent of a dead score.
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
