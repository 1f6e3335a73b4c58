#pragma once

// A composition of several graphs whose nodes and arcs are made when a search reaches them.
//
// Factors are composed from the left: ((1 o 2) o 3) ... A node of a level is a node of the level
// before, a node of its factor, and the state of the epsilon filter of compose_topologies.cpp. The
// arcs of a node are made once. Failure and rest arcs are matched exactly, in factors from the
// second one.

#include <cstdint>
#include <memory>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/topology.h"

namespace arcgrad {

class LazyComposition {
 public:
  /// Throws, naming `op`, for less than two factors, node weights, or failure arcs that are not
  /// matched.
  LazyComposition(const char* op, std::vector<Graph> factors);
  ~LazyComposition();
  LazyComposition(const LazyComposition&) = delete;
  LazyComposition& operator=(const LazyComposition&) = delete;

  /// Makes the arcs of a node.
  void expand(int32_t node);
  int32_t num_nodes() const;
  const Column& start() const { return start_; }
  bool is_accept(int32_t node) const;
  /// The arcs made so far. Those of an expanded node are [begin(node), end(node)), by input label.
  const LabelIndex& arcs() const { return arcs_; }
  const std::vector<double>& weights() const { return weights_; }
  int32_t begin(int32_t node) const { return begin_[static_cast<size_t>(node)]; }
  int32_t end(int32_t node) const { return end_[static_cast<size_t>(node)]; }
  /// All nodes and arcs made so far, recorded with the weights of the factors.
  Graph graph() const;

 private:
  class Level;
  const char* op_;
  std::vector<Graph> factors_;
  std::vector<std::unique_ptr<Level>> levels_;
  Column start_;
  // Of the last level, with arcs sorted by input label
  LabelIndex arcs_;
  Column olabel_, source_, made_of_;  // made_of_: the arc of the level
  std::vector<double> weights_;
  Column begin_, end_;
};

}  // namespace arcgrad
