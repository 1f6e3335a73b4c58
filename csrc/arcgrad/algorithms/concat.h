#pragma once

// Concatenation, for the ops concat and power.

#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// The concatenation of graphs, recorded under the name of `op`.
Graph concat_as(const char* op, const std::vector<Graph>& graphs);

}  // namespace arcgrad
