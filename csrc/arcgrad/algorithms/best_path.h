#pragma once

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad {

/// The best path of a graph.
struct BestPath {
  double score = kNegInf;  // -inf if there is no path
  int32_t start = -1;      // where it begins
  Column arcs;
};

/// Of the best paths, the one with the smallest arc ids, where the first difference decides and an
/// end comes before any arc. Among nodes that cycles join, fewer arcs decide before that.
BestPath find_best_path(const char* op, const Graph& graph);

}  // namespace arcgrad
