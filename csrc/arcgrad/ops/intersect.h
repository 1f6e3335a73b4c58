#pragma once

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// The intersection of two acceptors; errors name `op`.
Graph intersect_as(const char* op, const Graph& first, const Graph& second);

}  // namespace arcgrad
