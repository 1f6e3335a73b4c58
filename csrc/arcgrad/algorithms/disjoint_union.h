#pragma once

#include <span>
#include <vector>

#include "arcgrad/autograd/tape.h"

namespace arcgrad {

/// Topologies side by side: the arcs of each, and after them epsilon arcs up to the next.
struct Parts {
  struct Part {
    TopologyPtr topology;
    int32_t first_node, first_arc;
  };
  std::vector<Part> parts;
  Column epsilon_src, epsilon_dst;
  int32_t num_arcs = 0;  // of all
};

/// Graphs put side by side, the beginning of the rational operations: all nodes and arcs in order,
/// no starts or accepts yet. The arcs of a large result are made when somebody first looks at them.
class DisjointUnion {
 public:
  /// `first_node` ids are left free at the front, and num_epsilon[i] arcs after those of graph i.
  DisjointUnion(const char* op, std::vector<Graph> graphs, int32_t first_node = 0,
                std::span<const int64_t> num_epsilon = {});

  /// Where node `n` of graph `i` is.
  int32_t node(size_t i, int32_t n) const { return parts_.parts[i].first_node + n; }
  /// Adds the next of the epsilon arcs, of weight 0.
  void add_epsilon(int32_t src, int32_t dst);
  Graph record() &&;

  /// All but the arcs.
  Arrays arrays;

 private:
  const char* op_;
  std::vector<Graph> graphs_;
  Parts parts_;
};

}  // namespace arcgrad
