#pragma once

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// The graph with output labels as early on its paths as possible. It must be connected.
Graph push_labels(const char* op, const Graph& graph);

}  // namespace arcgrad
