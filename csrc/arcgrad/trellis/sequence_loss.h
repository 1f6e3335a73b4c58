#pragma once

// Sequence losses: one pass over the emissions for both scores, and one over their gradient.

#include <optional>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad::trellis {

/// The negative forward score of intersect(graph, emissions) for each example, plus the forward
/// score of the emissions if `normalize`. A single graph is paired with all emissions.
///
/// Returns nothing if the caller must compose the losses from scores: a graph is not an explicit
/// acceptor, emissions are not a dense linear graph or occur twice, or a product must be
/// materialised.
std::optional<std::vector<Graph>> sequence_losses(const char* op, const std::vector<Graph>& graphs,
                                                  const std::vector<Graph>& emissions,
                                                  bool normalize);

}  // namespace arcgrad::trellis
