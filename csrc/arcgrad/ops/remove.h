#pragma once

// Removal of arcs as a step of other ops.

#include <optional>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad {

/// remove(), whose errors and records begin with the name of `op`.
Graph remove_as(const char* op, const Graph& graph, int32_t ilabel, std::optional<int32_t> olabel,
                Semiring semiring);

/// Removes the arcs that are epsilon on both sides.
inline Graph remove_epsilons(const char* op, const Graph& graph, Semiring semiring) {
  return remove_as(op, graph, kEpsilon, kEpsilon, semiring);
}

}  // namespace arcgrad
