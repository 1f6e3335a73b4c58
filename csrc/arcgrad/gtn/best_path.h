#pragma once

// The best path by the rules of gtn.

#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/gtn/arc_order.h"

namespace arcgrad::gtn {

/// Which of several equally good paths is taken. Both visit the nodes in topological order, and end
/// at the first of the best accept nodes.
enum class Ties : uint8_t {
  score,  // each node keeps the first of its best incoming arcs, and starts only if it must
  path,   // each node keeps the best arc that is visited first, and starts if that is as good
};

/// The best path over the arcs of a graph. NaN weights count as -inf. The rules are those of
/// find_best_path() if the graph has a cycle.
BestPath find_best_path(const char* op, const Graph& graph, const ArcOrder& order, Ties ties);

/// The best path of a product that is not built and has no epsilon arcs, as a recorded chain.
/// Visits the arcs as find_best_path() does, without keeping them.
Graph best_path_of_product(const char* op, const Graph& graph, Ties ties);

}  // namespace arcgrad::gtn
