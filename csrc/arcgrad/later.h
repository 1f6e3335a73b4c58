#pragma once

#include <cstdint>

namespace arcgrad {

/// Whether an op leaves the arcs and weights of so large a result to whoever first looks at them.
/// Such arrays go at the speed of memory, so a chain of ops that writes only the last of them saves
/// more than the bookkeeping costs.
bool is_for_later(int64_t num_arcs);
/// For tests: whether small results are put off as well.
void force_later(bool force);

/// What is put off may depend on other things that are, so many of them on top of each other.
inline constexpr int32_t kMaxLater = 8;

}  // namespace arcgrad
