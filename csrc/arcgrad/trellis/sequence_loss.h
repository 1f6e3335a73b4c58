#pragma once

// Sequence losses in one pass over the emissions, and one over their gradient.

#include <optional>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad::trellis {

/// For each example minus the forward score of intersect(graph, emissions), plus the forward score
/// of the emissions if `normalize`. A list of one graph applies to all emissions.
///
/// Empty if the losses must be composed from scores instead: a graph is not an explicit acceptor,
/// emissions are not a dense linear graph or occur twice, or a product is best materialised.
std::optional<std::vector<Graph>> sequence_losses(const char* op, const std::vector<Graph>& graphs,
                                                  const std::vector<Graph>& emissions,
                                                  bool normalize);

}  // namespace arcgrad::trellis
