#pragma once

#include <vector>

#include "arcgrad/tape.h"

namespace arcgrad {

/// Records an op that picks a path: a chain of these arcs of `graph` with their weights.
Graph record_path(const char* op, const Graph& graph, std::vector<int32_t> arcs);

}  // namespace arcgrad
