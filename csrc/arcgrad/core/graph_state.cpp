// Releases long tapes without recursion.

#include "arcgrad/core/graph_state.h"

#include <utility>
#include <vector>

namespace arcgrad {

/// Each entry of the tape owns the entries before it, so destroying one would recurse to the depth
/// of the tape. Entries that are released during the destruction of another one are queued instead.
Var::~Var() {
  static thread_local std::vector<std::shared_ptr<Entry>>* released = nullptr;
  if (!entry) return;
  if (released) {
    released->push_back(std::move(entry));
    return;
  }
  std::vector<std::shared_ptr<Entry>> queue;
  released = &queue;
  entry.reset();
  while (!queue.empty()) {
    std::shared_ptr<Entry> next = std::move(queue.back());
    queue.pop_back();
    next.reset();
  }
  released = nullptr;
}

int64_t Var::num_weights() const {
  return deferred ? deferred->built().topology->num_arcs() : size;
}

}  // namespace arcgrad
