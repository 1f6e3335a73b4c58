#pragma once

// Dispatch on the instruction set at run time. A room with vector loops compiles them twice, in
// its isa/baseline.cpp and isa/avx2.cpp, into the namespaces `baseline` and `avx2`.

namespace arcgrad {

/// True if AVX2 and FMA are available and not disabled for tests.
bool use_avx2();
/// For tests: with `force`, the portable loops are used even if the processor supports AVX2.
void force_baseline(bool force);

/// `name` in the namespace of the instruction set to use, looked up from the caller's namespace.
#ifdef ARCGRAD_AVX2
#define ARCGRAD_LOOPS(name) (::arcgrad::use_avx2() ? avx2::name : baseline::name)
#else
#define ARCGRAD_LOOPS(name) (baseline::name)
#endif

}  // namespace arcgrad
