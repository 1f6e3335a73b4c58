#pragma once

// Best scores and best paths of a list of graphs in one call.

#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad::trellis {

/// The score of the best path of each graph. The products among them are one batch with one entry
/// on the tape.
std::vector<Graph> best_scores(const char* op, const std::vector<Graph>& graphs);

/// The best path of each graph, as a linear graph on the tape.
std::vector<Graph> viterbi_paths(const char* op, const std::vector<Graph>& graphs);

/// How often the best path of a product uses each arc of one of its factors.
Graph factor_counts(const char* op, const Graph& product, const Graph& factor);

}  // namespace arcgrad::trellis
