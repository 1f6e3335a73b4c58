#pragma once

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// A scalar graph in float64, as scores are; others as they are.
Graph widen_score(const Graph& graph);

/// Records first + factor * second, arc by arc, for graphs of the same structure.
Graph record_sum(const char* op, const Graph& first, const Graph& second, double factor);

}  // namespace arcgrad
