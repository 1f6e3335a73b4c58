#pragma once

// The recursion of PathScores with cycles.

#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

/// Strongly connected components with more nodes than this are refused in the log semiring, since
/// the sum over their cycles takes a dense solve.
inline constexpr int32_t kMaxComponent = 2048;

/// Fills a table of a graph with cycles, in both semirings. Throws if a cycle diverges.
void run_cyclic(PathTable& table, const Weights& weights, std::span<const int32_t> sources,
                const PathOptions& options);

}  // namespace arcgrad
