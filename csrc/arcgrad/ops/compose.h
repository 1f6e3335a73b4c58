#pragma once

#include "arcgrad/graph.h"

namespace arcgrad {

/// compose(), recorded under the name of the op that asked for it.
Graph compose_as(const char* op, const Graph& first, const Graph& second);

}  // namespace arcgrad
