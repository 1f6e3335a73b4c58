#pragma once

// The best path of a graph, and graphs that consist of one path.

#include <span>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad {

/// The best path of a graph.
struct BestPath {
  double score = kNegInf;  // -inf if there is no path
  int32_t start = -1;      // its first node
  Column arcs;             // with node weights, the first and the last are those of its ends
};

/// The best path over the arcs of a graph. Ties: the path with the smallest arc ids, where the
/// first difference decides and the end of a path precedes any arc. Inside a strongly connected
/// component the path with fewer arcs wins first.
BestPath find_best_path(const char* op, const Graph& graph);

/// The Viterbi score and path over the arcs of the graph; a product is materialized first.
Graph viterbi_score_of_arcs(const char* op, const Graph& graph);
Graph viterbi_path_of_arcs(const char* op, const Graph& graph);

/// A chain with these labels on both sides.
Arrays chain_arrays(Column labels);
/// Moves the start weight of a path from before its arcs to behind them, where the weights of a
/// graph have it.
void move_start_weight(const Topology& topology, std::span<int32_t> of_path);
/// A chain with the labels of these arcs, which node weights follow if the topology has them.
Arrays path_arrays(const Topology& topology, std::span<const int32_t> weights);
/// Records the score of a path over the arcs of `graph`.
Graph record_path_score(const char* op, const Graph& graph, BestPath path);
/// Records an op that selects a path: a chain of these arcs of `graph` with their weights. With
/// node weights, the first and the last are those of its ends.
Graph record_path(const char* op, const Graph& graph, Column arcs);

}  // namespace arcgrad
