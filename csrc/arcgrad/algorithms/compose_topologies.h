#pragma once

// Composition of the nodes, arcs and labels of two graphs, without weights.

#include <optional>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// A composition of topologies, and the maps from the arcs of each input.
struct Composed {
  Arrays arrays;
  ArcMap first, second;
};
/// The composition without the nodes that lie on no accepted path. Errors name `op`. Throws if the
/// search reaches more than `max_arcs` arcs; the default is what half of the memory of the machine
/// holds.
Composed compose_topologies(const char* op, const Topology& first, const Topology& second,
                            std::optional<int64_t> max_arcs = std::nullopt);

}  // namespace arcgrad
