#pragma once

#include <span>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// The arrays of a topology with other ids: node n becomes node[n] < `num_nodes`, or is left out if
/// that is negative; arc k is arc `arcs[k]` of `from`, whose nodes must not be left out.
Arrays renumber(const Topology& from, std::span<const int32_t> node, int32_t num_nodes,
                std::span<const int32_t> arcs);

}  // namespace arcgrad
