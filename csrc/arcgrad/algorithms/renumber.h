#pragma once

#include <span>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// What a topology is made of with other ids: node n becomes node[n] out of `num_nodes`, or is left
/// out if that is negative, and arc k is arc `arcs[k]` of `from`, which joins nodes that stay.
Arrays renumber(const Topology& from, std::span<const int32_t> node, int32_t num_nodes,
                std::span<const int32_t> arcs);

}  // namespace arcgrad
