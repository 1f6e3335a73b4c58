#pragma once

// Pairs of nodes of one graph that equal strings reach: which strings have two paths, and which
// nodes have a common future.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/core/topology.h"

namespace arcgrad {

/// The pairs of nodes that two paths with the same string reach from start nodes, and the steps
/// between them. A path takes an epsilon arc while the other one waits.
class PairGraph {
 public:
  /// One arc, or two arcs with the same label, from a pair to a pair.
  struct PairStep {
    int32_t from, to;
    int32_t first, second;  // arcs, or -1
  };

  /// `codes` are the labels of the arcs plus one, so that 0 is epsilon. Throws if there are too
  /// many pairs or steps.
  PairGraph(const char* op, const Topology& topology, std::span<const uint32_t> codes);

  int32_t num_starts() const { return num_starts_; }  // the first pairs are those of start nodes
  int32_t size() const { return ids_.size(); }
  Pair pair(int32_t id) const { return ids_.pair(id); }
  /// Whether equal strings lead from both nodes to accept nodes.
  bool is_useful(int32_t id) const { return useful_[id]; }
  /// The same for a pair of nodes that equal strings reach.
  bool is_useful(int32_t first, int32_t second) const {
    return useful_[ids_.find(ids_.key({first, second}))];
  }
  /// The steps from a pair.
  std::span<const PairStep> steps(int32_t id) const {
    return std::span(steps_).subspan(offset_[id], offset_[id + 1] - offset_[id]);
  }

 private:
  PairIds ids_;
  int32_t num_starts_ = 0;
  Buffer<PairStep> steps_;
  Buffer<size_t> offset_;
  Buffer<uint8_t> useful_;
};

}  // namespace arcgrad
