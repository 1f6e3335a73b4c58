#pragma once

#include <vector>

#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/autograd/tape.h"

namespace arcgrad {

/// Some distances of one sweep, as outputs of an op.
struct Distances {
  PathScores sweep;
  /// Arc of the op's input for each arc of the sweep, or -1; empty if they are the same.
  Column arcs;
  /// Node of the sweep for each output.
  Column nodes;
};

/// Records an op whose outputs are distances: one arc for each entry of each `parts[i].nodes`, in
/// order, between two nodes, with the label its number.
Graph record_distances(const char* op, const Graph& graph, std::vector<Distances> parts,
                       DType dtype);

}  // namespace arcgrad
