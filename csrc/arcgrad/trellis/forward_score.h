#pragma once

// Forward scores of a list of graphs in one call, and the posteriors of the factors of a product.

#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad::trellis {

/// The forward score of each graph of a list. The products among them are one batch with one entry
/// on the tape, and so are the dense linear graphs.
std::vector<Graph> forward_scores(const char* op, const std::vector<Graph>& graphs);

/// The posteriors of the arcs of one factor of a product, on the tape.
Graph factor_posteriors(const char* op, const Graph& product, const Graph& factor);

}  // namespace arcgrad::trellis
