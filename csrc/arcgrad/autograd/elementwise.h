#pragma once

// Sums and differences of graphs with the same structure.

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// A scalar graph converted to float64, the dtype of scores; any other graph unchanged.
Graph widen_score(const Graph& graph);

/// Throws, naming the first difference, unless both have the same structure.
void require_same_structure(const char* op, const Topology& a, const Topology& b);

/// Records first + factor * second, arc by arc, for graphs of the same structure.
Graph record_sum(const char* op, const Graph& first, const Graph& second, double factor);

}  // namespace arcgrad
