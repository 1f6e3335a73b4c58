#pragma once

// Composition of the nodes, arcs and labels of two graphs, without weights.

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// A composition of topologies, and the maps from the arcs of each input.
struct Composed {
  Arrays arrays;
  ArcMap first, second;
};
/// The composition without the nodes that lie on no accepted path. Errors name `op`.
Composed compose_topologies(const char* op, const Topology& first, const Topology& second);

}  // namespace arcgrad
