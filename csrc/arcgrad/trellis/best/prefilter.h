#pragma once

// Fast best paths for graphs that are dense or occur in several examples. prefilter.cpp explains
// it.

#include <span>
#include <vector>

#include "arcgrad/core/weights.h"
#include "arcgrad/trellis/best/alignment.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// Finds the best paths of some examples, by ascending length, with the same results as find_best()
/// but faster. `weights` have the type T of the weights of the product.
///
/// Returns which examples it solved. It fails for an example if too many arcs are nearly as good as
/// the best, if weights are too large, or if a weight or emission is NaN or +inf.
template <class T>
std::vector<bool> prefilter_best(const TrellisGraph& graph, const Weights& weights,
                                 std::span<const Emissions* const> examples,
                                 std::span<BestAlignment* const> out, int64_t max_bytes);

/// The most examples that prefilter_best() takes at once.
size_t most_prefiltered(const TrellisGraph& graph);

}  // namespace arcgrad::trellis
