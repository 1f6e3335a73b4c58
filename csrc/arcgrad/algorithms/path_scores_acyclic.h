#pragma once

// The recursions of PathScores in the log semiring without cycles.

#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

/// Fills a table of an acyclic graph in the log semiring.
void run_acyclic(PathTable& table, const Weights& weights);
/// The same by logadd, which is slow, but gives a single path exactly the sum of its arcs.
void run_acyclic_exact(PathTable& table, const Weights& weights);

}  // namespace arcgrad
