#pragma once

// Subgraphs and permutations of a topology.

#include <span>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// The arrays of a topology with new ids. Node n becomes node[n] < `num_nodes`, or is removed if
/// that is negative. Arc k is arc `arcs[k]` of `from`, neither of whose nodes may be removed.
Arrays renumber(const Topology& from, std::span<const int32_t> node, int32_t num_nodes,
                std::span<const int32_t> arcs);

}  // namespace arcgrad
