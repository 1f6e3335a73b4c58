#pragma once

// The subset construction: sets of nodes of an acceptor as states of a deterministic automaton.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

/// Whether there is at most one start node and no input label twice, or epsilon, at a node.
bool is_deterministic(const Topology& topology);

/// A topology without the arcs of weight -inf, and with arcs for node weights, see expanded().
struct PossibleArcs {
  TopologyPtr topology;
  /// The arcs that are kept; empty if all are.
  Column arcs;
};
PossibleArcs possible_arcs(const Graph& graph);

/// The states that strings lead to in a graph without weights, read by its input labels.
/// A state is a set of nodes, closed over arcs without a label. It is built when it is first
/// reached. State 0 is the empty set.
///
/// Cost: O(arcs of the nodes of the states, sorted); there may be exponentially many states.
class Subsets {
 public:
  /// Throws, naming `op`, if there are more than `max_states` states.
  Subsets(const char* op, TopologyPtr topology, int64_t max_states);

  static constexpr int32_t kEmpty = 0;
  /// The state that a label leads to.
  int32_t next(int32_t state, int32_t label);
  /// The state of some nodes, and the union of two states.
  int32_t state_of(std::span<const int32_t> nodes);
  int32_t joined(int32_t a, int32_t b);
  /// The state of the start nodes.
  int32_t start() {
    if (start_ < 0) start_ = state_of(topology_->start());
    return start_;
  }
  bool accepts(int32_t state) const { return accepts_[static_cast<size_t>(state)]; }
  int32_t num_states() const { return static_cast<int32_t>(first_.size()) - 1; }

 private:
  struct LabelStep {
    int32_t label, to;
  };
  std::span<const int32_t> nodes(int32_t state) const {
    return std::span(nodes_).subspan(first_[state], first_[state + 1] - first_[state]);
  }
  void expand(int32_t state);
  /// Adds a node, and the nodes that it reaches without a label, to the set that is collected.
  void collect(int32_t node);
  /// The state of the collected nodes.
  int32_t take();

  const char* op_;
  TopologyPtr topology_;
  std::span<const int32_t> label_;
  int64_t max_states_;
  int32_t start_ = -1;
  // States: their nodes, and the range of their steps, once known.
  std::vector<int32_t> nodes_;
  std::vector<size_t> first_{0};
  std::vector<bool> accepts_;
  std::vector<LabelStep> steps_;
  struct Known {
    int64_t begin = -1, end = -1;
  };
  std::vector<Known> known_;
  std::unordered_multimap<uint64_t, int32_t> found_;
  std::unordered_map<uint64_t, int32_t> unions_;
  // The set that is collected.
  std::vector<int32_t> set_;
  std::vector<bool> is_in_set_;
  InterruptPoll poll_;
};

}  // namespace arcgrad
