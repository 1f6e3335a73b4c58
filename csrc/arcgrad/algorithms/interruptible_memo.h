#pragma once

// Memo slots of a topology whose values take long to compute.

#include <utility>

#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/fork_safe_once.h"

namespace arcgrad {

/// As Topology::memo, but `make` runs without a lock, so that Ctrl-C ends it. Threads that ask at
/// the same time each compute the value, and all but the first drop theirs.
template <class T, class Make>
const T& interruptible_memo(const Topology& topology, Memo slot, const Make& make) {
  struct Published {
    mutable ForkSafeOnce once;
    mutable T value{};
  };
  const auto& published = *topology.memo<std::shared_ptr<const Published>>(
      slot, [] { return std::make_shared<const Published>(); });
  if (!published.once.is_done()) {
    T made = make();
    published.once.call([&] { published.value = std::move(made); });
  }
  return published.value;
}

}  // namespace arcgrad
