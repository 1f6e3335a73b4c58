#pragma once

// The order in which gtn lists the arcs of a node. It decides the order of the arcs of
// compositions, and which of several equally good paths is taken.

#include <algorithm>
#include <optional>

#include "arcgrad/core/topology.h"

namespace arcgrad::gtn {

/// How a program sorted the arcs of a graph: gtn's two marks, and the side by whose labels the arcs
/// of each node are in order. By default they are in the order of their numbers.
struct ArcOrder {
  bool by_ilabel = false, by_olabel = false;
  std::optional<Side> side;
};

/// The arcs that leave each node, in the order of gtn: node n has the slots [begin(n), begin(n +
/// 1)).
class ArcList {
 public:
  /// `side` is the side of the labels that label() returns.
  ArcList(const Topology& topology, Side side, const ArcOrder& order);

  int32_t begin(int32_t node) const { return offset_[node]; }
  int32_t arc(int32_t slot) const { return arcs_ ? arcs_[slot] : slot; }
  int32_t dst(int32_t arc) const { return dst_[arc]; }
  int32_t label(int32_t arc) const { return label_[arc]; }

  /// Calls `f(arc, dst)` for each arc of the node with this label, in the order of gtn.
  template <class F>
  void match(int32_t node, int32_t label, const F& f) const {
    int32_t slot = begin(node);
    const int32_t end = begin(node + 1);
    if (end - slot <= kScanned || !index_) {
      for (; slot < end; ++slot)
        if (label_[arc(slot)] == label) f(arc(slot), dst_[arc(slot)]);
      return;
    }
    const int32_t* const labels = index_->label.data();
    slot = static_cast<int32_t>(std::lower_bound(labels + slot, labels + end, label) - labels);
    for (; slot < end && labels[slot] == label; ++slot) f(index_->arc[slot], index_->dst[slot]);
  }
  /// Calls `f(arc, dst)` for each epsilon arc of the node, in the order of gtn.
  template <class F>
  void match_epsilon(int32_t node, const F& f) const {
    if (has_epsilon_) match(node, kEpsilon, f);
  }

 private:
  /// Nodes with at most this many arcs are searched without an index.
  static constexpr int32_t kScanned = 16;
  const int32_t *offset_, *arcs_, *dst_, *label_;
  const LabelIndex* index_ = nullptr;
  bool has_epsilon_;
};

}  // namespace arcgrad::gtn
