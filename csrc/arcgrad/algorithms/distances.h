#pragma once

#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// Scores of some nodes, to be the outputs of an op.
struct Distances {
  PathScores scores;
  /// The arc of the op's input for each arc that the scores were computed on, or -1; empty if they
  /// are the same.
  Column arcs;
  /// The node of each output.
  Column nodes;
};

/// Records an op whose outputs are distances: a graph of two nodes with one arc per entry of
/// `distances.nodes`, labelled 0, 1, 2, ...
Graph record_distances(const char* op, const Graph& graph, Distances distances, DType dtype);

}  // namespace arcgrad
