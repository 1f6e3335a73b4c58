#pragma once

#include <vector>

#include "arcgrad/tape.h"

namespace arcgrad {

/// Graphs put side by side, the beginning of the rational operations: all nodes and arcs in order,
/// no starts or accepts yet.
class Beside {
 public:
  /// `first_node` ids are left free at the front, and there is room for `num_epsilon` more arcs.
  Beside(const char* op, std::vector<Graph> graphs, int32_t first_node = 0, size_t num_epsilon = 0);

  /// Where node `n` of graph `i` is.
  int32_t node(size_t i, int32_t n) const { return node_offset_[i] + n; }
  /// Adds an epsilon arc of weight 0.
  void add_epsilon(int32_t src, int32_t dst);
  Graph record() &&;

  Arrays arrays;

 private:
  const char* op_;
  std::vector<Graph> graphs_;
  std::vector<int32_t> node_offset_, arc_offset_;
};

}  // namespace arcgrad
