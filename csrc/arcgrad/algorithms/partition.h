#pragma once

// The coarsest partition of the nodes of a deterministic graph into nodes with equal futures.

#include <cstdint>
#include <span>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// A graph by what distinguishes its nodes. Arcs of one node have different symbols.
struct Futures {
  /// The graph, of which the arcs with symbol -1 do not count.
  const Topology& topology;
  /// One per arc: equal for equal labels and weights.
  std::span<const int32_t> symbols;
  /// One per node: different for nodes that accept and nodes that do not.
  std::span<const uint8_t> accepts;
};

/// The class of each node, numbered in any order.
Column partition_by_future(const Futures& futures);

}  // namespace arcgrad
