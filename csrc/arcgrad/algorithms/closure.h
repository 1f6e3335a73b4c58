#pragma once

// Repetition, for the ops closure and plus and for gtn.

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// The closure: node 0 is a new start and accept node, with epsilon arcs to the old start nodes and
/// from the old accept nodes.
Graph closure_as(const char* op, const Graph& graph);

/// Whether a node is both a start and an accept node, so that a path has no arc, and no weight.
bool has_empty_path(const Topology& topology);

/// The same graph without its empty paths, recorded under the name of `op`.
Graph without_empty_path(const char* op, const Graph& graph);

}  // namespace arcgrad
