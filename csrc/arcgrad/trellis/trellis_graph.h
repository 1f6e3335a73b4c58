#pragma once

// TrellisGraph: the topology of a graph as the recursions over frames of this room read it.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/buffer.h"

namespace arcgrad::trellis {

/// A sparse matrix by rows: the terms of state r are [offset[r], offset[r + 1]).
struct Rows {
  Buffer<int32_t> offset;
  Buffer<int32_t> index;  // the state whose value a term reads
  Buffer<int32_t> arc;    // the arc whose weight it has; -1 for weight 0

  int32_t num_terms() const { return static_cast<int32_t>(index.size()); }
};

/// A graph arranged for a recursion over frames. `side` of its arcs is matched with the emissions.
///
/// The recursion keeps one value per state. An emitting state is a node together with one label
/// that enters it: after a frame, its value is the score of all paths that took that label in this
/// frame. A non-emitting state is a node that several labels or an epsilon arc enter, or that is
/// only a start: its value is a sum over states of the same frame. Emitting states are numbered
/// first, then non-emitting ones in topological order. With e the emissions of a frame, the forward
/// algorithm (Rabiner 1989; for epsilon arcs, Mohri 2009) computes
///
///     emitting p:      new[p] = e[label of p] * sum over in-terms of old[index] * weight
///     non-emitting s:  new[s] =                 sum over in-terms of new[index] * weight
///
/// and the backward algorithm, with g[p] = e[label of p] * b[p] for emitting states and g[s] = b[s]
/// of the same frame for non-emitting ones, in descending order of the latter,
///
///     any state v:     b[v] = sum over out-terms of g[index] * weight
///
/// The weights of start and accept nodes, if there are any, are the values of their states before
/// the first frame and the scores of ending there after the last. A frame takes one multiplication
/// per term. A slot is the position of a label in `labels`.
struct TrellisGraph {
  TrellisGraph(const Topology& topology, Side side);

  /// The numbers of emitting states, of all states (the recursion keeps one value for each), and of
  /// weights: those of arcs, then those of start and accept nodes, if there are any.
  int32_t num_emitting = 0, num_values = 0, num_weights = 0;
  bool has_node_weights = false;
  int32_t num_arcs() const { return first_start_weight_; }
  /// The index of the weight of start[k], of accept[k]; -1 for weight 0.
  int32_t start_weight(size_t k) const {
    return has_node_weights ? first_start_weight_ + int(k) : -1;
  }
  int32_t accept_weight(size_t k) const {
    return has_node_weights ? first_accept_weight_ + int(k) : -1;
  }
  /// Names a weight in errors: an arc, or the start or accept weight of a node.
  std::string describe_weight(size_t index) const;
  /// The distinct labels of emitting states, ascending, and the slot of each emitting state.
  std::vector<int32_t> labels;
  std::vector<int32_t> slot;
  /// The node of each state.
  std::vector<int32_t> node;
  /// The states of start and accept nodes.
  std::vector<int32_t> start, accept;
  /// The terms by their source. In each row those to emitting states come first; those to
  /// non-emitting states begin at `middle`.
  Rows out;
  Buffer<int32_t> middle;
  /// The terms by their destination, computed on first use.
  const Rows& in() const;
  /// Whether a term leads to a non-emitting state.
  bool is_entered(int32_t state) const { return is_entered_[state - num_emitting]; }
  /// Whether epsilon arcs form a cycle. Then the recursion does not exist, and all the above is
  /// empty.
  bool has_epsilon_cycle = false;

  /// Of a banded graph: the offsets (destination minus source) of its arcs between emitting states,
  /// ascending. Empty for other graphs.
  std::vector<int32_t> offsets;
  /// Whether at least half of all pairs of emitting states have an arc, and non-emitting states
  /// are used only before the first and after the last frame.
  bool is_dense = false;
  /// The fraction of the cells (frame, emitting state) that lie on an accepted path of `frames`
  /// frames, if the graph has no cycle; 1 otherwise.
  double occupancy(int32_t frames) const;

 private:
  int32_t first_start_weight_ = 0, first_accept_weight_ = 0;
  mutable ForkSafeOnce in_once_;
  mutable Rows in_;
  std::vector<bool> is_entered_;

  void build(const Topology& topology, Side side);
  /// Sets `labels` and `slot`.
  void set_labels(std::vector<int32_t> state_labels);
  bool has_inner_non_emitting() const;
  void find_offsets();
  void find_density();
  void find_spans();
  /// The lengths, in frames, of paths from a start to an emitting state and from it to an accept
  /// node.
  struct Span {
    int32_t least_before, most_before, least_after, most_after;
  };
  /// Of each emitting state; empty if the graph has a cycle.
  std::vector<Span> spans_;
};

/// The trellis graph of a topology, built on first use.
const std::shared_ptr<const TrellisGraph>& trellis_graph(const Topology& topology, Side side);

}  // namespace arcgrad::trellis
