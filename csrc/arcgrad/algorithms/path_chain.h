#pragma once

#include <span>
#include <vector>

#include "arcgrad/autograd/tape.h"

namespace arcgrad {

/// A chain with these labels on both sides.
Arrays chain_arrays(Column labels);
/// A chain with the labels of these arcs.
Arrays path_arrays(const Topology& topology, std::span<const int32_t> arcs);

/// Records an op that picks a path: a chain of these arcs of `graph` with their weights.
Graph record_path(const char* op, const Graph& graph, Column arcs);

}  // namespace arcgrad
