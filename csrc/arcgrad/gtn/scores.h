#pragma once

// Scores and best paths by the rules of gtn: for equal paths, for weights that are no numbers, and
// for nodes that no path reaches.

#include <vector>

#include "arcgrad/gtn/compose.h"

namespace arcgrad::gtn {

/// The graph with -inf in place of NaN weights, recorded if it changes.
Graph without_nan(const Graph& graph);

/// NaN counts as -inf. If the best path has weight +inf, so has the score, and the gradient is NaN.
/// Throws if a node that does not start and that no arc enters leads to an accept node.
Graph forward_score(const Graph& graph);
std::vector<Graph> forward_score(const std::vector<Graph>& graphs);
Graph viterbi_score(const Ordered& graph);
Graph viterbi_path(const Ordered& graph);

}  // namespace arcgrad::gtn
