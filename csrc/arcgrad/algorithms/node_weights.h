#pragma once

// Node weights as arcs, for recursions over paths.

#include <cstdint>
#include <string>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// The topology itself or, if it has node weights, one that accepts the same paths without them. It
/// has two more nodes: an epsilon arc leads from the first to each start node, and from each accept
/// node to the second. The index of such an arc is that of the node weight, so both topologies have
/// the same weights, gradients and arc maps.
const TopologyPtr& expanded(const TopologyPtr& topology);
const Topology& expanded(const Topology& topology);

/// "arc 3", or "the start weight of node 3" for such an arc of expanded().
std::string describe_weight(const Topology& topology, int64_t index);

}  // namespace arcgrad
