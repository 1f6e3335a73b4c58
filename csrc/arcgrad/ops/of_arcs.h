#pragma once

#include "arcgrad/core/graph.h"

namespace arcgrad {

// Ops that have a way of their own for products, on the arcs of a graph. A product is built first.
Graph forward_score_of_arcs(const char* op, const Graph& graph);
Graph viterbi_score_of_arcs(const char* op, const Graph& graph);
Graph viterbi_path_of_arcs(const char* op, const Graph& graph);

}  // namespace arcgrad
