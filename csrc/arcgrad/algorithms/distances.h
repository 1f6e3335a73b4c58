#pragma once

// Ops whose outputs are path scores of nodes: shortest_distance, and parts of other ops.

#include <memory>

#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// The path scores of some nodes as outputs of an op.
struct Distances {
  PathScores scores;
  /// For each arc of the graph on which the scores were computed, the weight of the op's input, or
  /// -1. Empty if that graph is the input, in the form expanded().
  Column arcs;
  /// The node of each output.
  Column nodes;
};

/// The rule of an op whose outputs are distances.
std::unique_ptr<Rule> make_distances_rule(const char* op, const Graph& graph, Distances distances);

/// Two nodes with `size` arcs between them, labelled 0, 1, 2, ...
TopologyPtr distances_topology(int64_t size);

/// Records an op whose outputs are distances: distances_topology with one arc per entry of
/// `distances.nodes`.
Graph record_distances(const char* op, const Graph& graph, Distances distances, DType dtype);

}  // namespace arcgrad
