#pragma once

#include <span>
#include <vector>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// The disjoint union of graphs, the first step of the rational operations: all nodes and arcs in
/// order, without starts and accepts. The arcs of each graph may be followed by epsilon arcs.
class DisjointUnion {
 public:
  /// `first_node` ids are left free at the front, and num_epsilon[i] arcs after those of graph i.
  DisjointUnion(const char* op, std::vector<Graph> graphs, int32_t first_node = 0,
                std::span<const int64_t> num_epsilon = {});

  /// Where node `n` of graph `i` is.
  int32_t node(size_t i, int32_t n) const { return parts_[i].first_node + n; }
  /// Adds the next of the epsilon arcs, of weight 0.
  void add_epsilon(int32_t src, int32_t dst);
  Graph record() &&;

  /// All but the arcs, which record() adds.
  Arrays arrays;

 private:
  void make_arcs();

  const char* op_;
  std::vector<Graph> graphs_;
  struct Part {
    TopologyPtr topology;
    int32_t first_node, first_arc;
  };
  std::vector<Part> parts_;
  Column epsilon_src_, epsilon_dst_;
  int32_t num_arcs_ = 0;  // of all
};

}  // namespace arcgrad
