#pragma once

// Best paths of the products of one graph with several emissions.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/core/weights.h"
#include "arcgrad/trellis/best/alignment.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// The rows of all frames are kept up to this size. Beyond it some are computed again, which is
/// faster than page faults in newly allocated memory.
inline constexpr int64_t kBestBytes = int64_t{24} << 20;

/// Finds the best path of the product of a graph with each example: the same path and, to the last
/// bit, the same score that find_best_path() finds in the composed graph. The graph must have no
/// epsilon cycle. Without `with_paths`, finds scores and starts only.
std::vector<BestAlignment> find_best(const char* op, const TrellisGraph& graph,
                                     const Weights& weights, std::span<const Emissions> examples,
                                     bool with_paths, int64_t max_bytes = kBestBytes);

}  // namespace arcgrad::trellis
