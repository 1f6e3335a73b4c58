#pragma once

// Node weights as arcs, for recursions over paths.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// The topology itself or, if it has node weights, one that accepts the same paths without them. It
/// has two more nodes: an epsilon arc leads from the first to each start node, and from each accept
/// node to the second. The index of such an arc is that of the node weight, so both topologies have
/// the same weights, gradients and arc maps.
const TopologyPtr& expanded(const TopologyPtr& topology);
const Topology& expanded(const Topology& topology);

/// Those start or accept nodes whose weights are above -inf.
std::vector<int32_t> possible_ends(std::span<const int32_t> nodes,
                                   const std::vector<double>& weights);

/// Whether a weight is that of a node, or of such an arc of expanded().
bool is_node_weight(const Topology& topology, int64_t index);
/// "arc 3" or, for such a weight, "the start weight of node 3".
std::string describe_weight(const Topology& topology, int64_t index);

}  // namespace arcgrad
