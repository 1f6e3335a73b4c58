#pragma once

// The rational operations: union, concatenation and closure.

#include <optional>
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
  /// Makes the start (accept) nodes of graph `i` start (accept) nodes of the union.
  void add_starts(size_t i);
  void add_accepts(size_t i);
  /// Adds an epsilon arc from an accept node of graph `i` to a start node of graph `j`, which has
  /// their two weights. A missing graph stands for a node of the caller. Called in the order of the
  /// arcs, for all of them.
  struct JoinedNode {
    int32_t node;
    std::optional<size_t> graph = std::nullopt;
  };
  void add_epsilon(JoinedNode accept, JoinedNode start);
  /// Records the result under the name of the op.
  Graph record() &&;

  /// Nodes, start and accept nodes; those of the caller come first. record() adds the arcs.
  Arrays arrays;

 private:
  void make_arcs();
  Graph record_node_weights();
  bool has_node_weights() const;

  const char* op_;
  std::vector<Graph> graphs_;
  struct Summand {
    TopologyPtr topology;
    int32_t first_node, first_arc;
    /// The index of the first weight of the graph among the weights of all graphs.
    int32_t first_weight;
  };
  std::vector<Summand> summands_;
  Column epsilon_src_, epsilon_dst_;
  /// The weights of epsilon arcs, of start nodes and of accept nodes, as indices among the weights
  /// of all graphs; -1: 0. An epsilon arc has a weight of an accept node and one of a start node.
  Column epsilon_accept_, epsilon_start_, start_weights_, accept_weights_;
  int32_t num_arcs_ = 0;  // of all graphs, with epsilon arcs
};

}  // namespace arcgrad
