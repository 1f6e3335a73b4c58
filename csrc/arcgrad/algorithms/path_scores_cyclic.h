#pragma once

// The recursion of PathScores with cycles.

#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

/// Fills a table of a graph with cycles, in both semirings. Throws if a cycle diverges.
void run_cyclic(PathTable& table, const Weights& weights, std::span<const int32_t> sources,
                const PathOptions& options);

}  // namespace arcgrad
