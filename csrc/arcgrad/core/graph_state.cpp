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
  return deferred ? deferred->built().topology->num_weights() : size;
}

const Weights& GraphState::all_weights() {
  if (has_own_node_weights.load(std::memory_order_acquire)) [[unlikely]] {
    const std::lock_guard lock(mutex);
    if (node_weights) {
      const int64_t num_arcs = weights.size();
      try {
        for (const auto* values : {&node_weights->start, &node_weights->accept})
          for (const double w : *values) weights.append(w);
      } catch (...) {
        weights.truncate(num_arcs);
        throw;
      }
      node_weights.reset();
      has_own_node_weights.store(false, std::memory_order_release);
    }
  }
  return weights;
}

}  // namespace arcgrad
