#pragma once

// Dispatch on the instruction set. The inner loops of a room are compiled twice, by
// isa/baseline.cpp and isa/avx2.cpp in the room, into namespaces of these names.

namespace arcgrad {

/// Whether to use AVX2: the processor supports it, and tests have not disabled it.
bool use_avx2();
/// For tests: uses the portable loops although the processor supports AVX2.
void force_baseline(bool force);

/// `name` in the namespace of the instruction set to use, looked up from the caller's namespace.
#ifdef ARCGRAD_AVX2
#define ARCGRAD_LOOPS(name) (::arcgrad::use_avx2() ? avx2::name : baseline::name)
#else
#define ARCGRAD_LOOPS(name) (baseline::name)
#endif

}  // namespace arcgrad
