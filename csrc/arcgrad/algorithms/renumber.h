#pragma once

// Subgraphs and permutations of a topology.

#include <functional>
#include <span>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// The arrays of a topology with new ids. Node n becomes node[n] < `num_nodes`, or is removed if
/// that is negative. Arc k is arc `arcs[k]` of `from`, neither of whose nodes may be removed. The
/// indices of the node weights are appended to `arcs`, which then selects all weights; a node whose
/// weight fails `keeps_weight(index)` is no start or accept node any more.
Arrays renumber(const Topology& from, std::span<const int32_t> node, int32_t num_nodes,
                Column& arcs, const std::function<bool(int32_t)>& keeps_weight = nullptr);

/// The same arcs, followed by all node weights of a topology.
Column with_node_weights(Column arcs, const Topology& topology);

}  // namespace arcgrad
