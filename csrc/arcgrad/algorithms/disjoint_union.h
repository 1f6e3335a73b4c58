#pragma once

// The rational operations: union, concatenation and closure.

#include <span>
#include <vector>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// Builds a union, concatenation or closure: the disjoint union of graphs, all nodes and arcs in
/// order, to which the caller adds start nodes, accept nodes and epsilon arcs.
class DisjointUnion {
 public:
  /// The nodes of the graphs begin at `first_node`; nodes before it are the caller's. The arcs of
  /// graph i are followed by num_epsilon[i] epsilon arcs.
  DisjointUnion(const char* op, std::vector<Graph> graphs, int32_t first_node = 0,
                std::span<const int64_t> num_epsilon = {});

  /// The id of node `n` of graph `i` in the union.
  int32_t node(size_t i, int32_t n) const { return summands_[i].first_node + n; }
  /// Adds an epsilon arc of weight 0. Called in the order of the arcs, for all of them.
  void add_epsilon(int32_t src, int32_t dst);
  /// Records the result under the name of the op.
  Graph record() &&;

  /// Nodes, start and accept nodes. record() adds the arcs.
  Arrays arrays;

 private:
  void make_arcs();

  const char* op_;
  std::vector<Graph> graphs_;
  struct Summand {
    TopologyPtr topology;
    int32_t first_node, first_arc;
  };
  std::vector<Summand> summands_;
  Column epsilon_src_, epsilon_dst_;
  int32_t num_arcs_ = 0;  // of all graphs, with epsilon arcs
};

}  // namespace arcgrad
