#pragma once

// The limit on the nodes of ops whose results may grow without bound.

#include <cstdint>
#include <optional>

#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

/// `max_nodes` of an op, which must be positive; by default a million and ten per node of the
/// graph.
inline int64_t node_limit(const char* op, const Graph& graph, std::optional<int64_t> max_nodes) {
  require(!max_nodes || *max_nodes > 0, op, "max_nodes must be 1 or more, but it is ",
          max_nodes.value_or(0));
  return max_nodes.value_or(1'000'000 + 10 * int64_t{graph.num_nodes()});
}

}  // namespace arcgrad
