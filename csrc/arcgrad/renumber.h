#pragma once

#include <vector>

#include "arcgrad/tape.h"

namespace arcgrad {

/// Records an op that renumbers: `node[n]` is the new id of node n, or -1 to drop it, and `arcs`
/// lists the arcs to keep in their new order.
Graph record_renumbered(const char* op, const Graph& graph, const std::vector<int32_t>& node,
                        int32_t num_nodes, Column arcs);

}  // namespace arcgrad
