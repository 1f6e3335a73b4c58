#pragma once

// The recursions of PathScores in the tropical semiring without cycles, and the traceback.

#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

/// Fills a table of an acyclic graph in the tropical semiring.
void run_best(PathTable& table, const Weights& weights);
/// The same in reverse without derivatives, where arcs reach far and are stored in topological
/// order: without back-pointers.
void run_best_far(PathTable& table, const Weights& weights);

/// See PathScores::best_path and PathScores::precedes.
Column trace_back(const PathTable& table, int32_t node);
bool best_path_precedes(const PathTable& table, int32_t node, int32_t other);

}  // namespace arcgrad
