#pragma once

// Failure arcs (label kPhi) and rest arcs (label kRho): which arcs of a node match a label.
//
// A node that has an arc with a label matches it with these arcs. Otherwise its rest arcs match it,
// and consume it. A node without either backs off: the label is matched at the destination of its
// failure arc, which consumes nothing. The end of a string is one more label: it is matched by a
// node from which epsilon arcs alone lead to an accept node. Other nodes back off.
//
// These are the rules of the matchers of OpenFst (Allauzen et al. 2007), except that theirs match
// the end only at accept nodes.

#include <string_view>
#include <vector>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// The failure and rest arcs of a topology. `side` of its arcs is matched.
class Failures {
 public:
  /// Throws, naming `op`, if several failure arcs leave a node or failure arcs form a cycle, or if
  /// the other label of a failure or rest arc is not one of those that failure.cpp lists.
  Failures(std::string_view op, const Topology& topology, Side side);

  /// The node that failure arcs lead to, or -1, and the failure arc.
  int32_t parent(int32_t node) const { return parent_[static_cast<size_t>(node)]; }
  int32_t arc(int32_t node) const { return arc_[static_cast<size_t>(node)]; }
  /// Whether epsilon arcs alone, or none, lead from the node to an accept node.
  bool ends(int32_t node) const { return ends_[static_cast<size_t>(node)]; }
  /// Whether the end of a string is matched at the node or at one that it backs off to.
  bool can_end(int32_t node) const {
    while (node >= 0 && !ends(node)) node = parent(node);
    return node >= 0;
  }
  bool has_rest() const { return has_rest_; }

  /// ArcSlots of `index`: the arcs of a node are rest arcs, the failure arc, epsilon arcs and arcs
  /// with labels, in this order.
  struct ArcSlots {
    int32_t rest, failure, epsilon, label, end;
  };
  ArcSlots slots(int32_t node) const;
  const LabelIndex& index() const { return index_; }

  /// Calls `visit(slot)` for the arcs that match a label at a node. Returns whether there are any.
  template <class Visit>
  bool match(int32_t node, int32_t label, const Visit& visit) const {
    for (; node >= 0; node = parent(node)) {
      const ArcSlots at = slots(node);
      int32_t k = find(at.label, at.end, label);
      if (k < at.end && index_.label[static_cast<size_t>(k)] == label) {
        for (; k < at.end && index_.label[static_cast<size_t>(k)] == label; ++k) visit(k);
        return true;
      }
      for (k = at.rest; k < at.failure; ++k) visit(k);
      if (at.rest < at.failure) return true;
    }
    return false;
  }

 private:
  void check_labels(std::string_view op, const Topology& topology, Side side) const;
  void check_cycles(std::string_view op) const;
  void find_ends(const Topology& topology, Side side);
  /// The first of the slots with `label` or more.
  int32_t find(int32_t begin, int32_t end, int32_t label) const;

  const LabelIndex& index_;
  Column parent_, arc_, first_label_;
  std::vector<bool> ends_;
  bool has_rest_ = false;
};

/// The failures of a topology, computed on first use; null if it has no failure and rest arcs.
const Failures* find_failures(std::string_view op, const Topology& topology, Side side);

/// The label of a resolved arc, from that of the arc and the label that it matched.
inline int32_t resolved_label(int32_t label, int32_t matched) {
  return label == kRho ? matched : label == kPhi ? kEpsilon : label;
}

/// The failure arcs that lead to the arcs of a result: one map for each number of steps.
class FailureSteps {
 public:
  explicit FailureSteps(size_t num_arcs) : num_arcs_(num_arcs) {}
  /// Arc `at` of the result was matched at node `match`, which node `from` backs off to.
  void add(const Failures& failures, int32_t from, int32_t match, size_t at) {
    for (size_t step = 0; from != match; from = failures.parent(from), ++step) {
      if (step == steps_.size()) steps_.emplace_back(num_arcs_, -1);
      steps_[step][at] = failures.arc(from);
    }
  }
  std::vector<ArcMap> maps() && {
    std::vector<ArcMap> out;
    for (Column& step : steps_) out.push_back(ArcMap::gather(std::move(step)));
    return out;
  }

 private:
  size_t num_arcs_;
  std::vector<Column> steps_;
};

/// Throws if an arc has phi or rho on the other side than `matched` alone.
void require_matched(std::string_view op, const Topology& topology, Side matched);

/// Throws if a graph has failure or rest arcs: `op` would take them for ordinary arcs.
void require_no_failures(std::string_view op, const Topology& topology);

/// Throws if a node backs off at the end of strings: after `op` strings go on from accept nodes
/// only.
void require_ends(std::string_view op, const Topology& topology);

}  // namespace arcgrad
