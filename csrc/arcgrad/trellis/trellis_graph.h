#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/buffer.h"

namespace arcgrad::trellis {

/// Sparse rows: row r has the terms [offset[r], offset[r + 1]).
struct Rows {
  Buffer<int32_t> offset;
  Buffer<int32_t> index;  // the value a term reads
  Buffer<int32_t> arc;    // the arc whose weight it carries; -1 for weight 0

  int32_t num_terms() const { return static_cast<int32_t>(index.size()); }
};

/// A graph arranged for a recursion over frames. `side` of its arcs is matched with the emissions.
///
/// Values are places, then sums. A place is a node entered with one label: after a frame it holds
/// the score of all paths that took that label in this frame. A sum is a node entered in several
/// ways (by several labels, or by epsilon arcs) or only as a start; sums are in topological order.
/// With e the emissions of a frame, one frame of the recursion is
///
///     place p: new[p] = e[label of p] * sum over in-terms of old[index] * weight
///     sum s:   new[s] =                 sum over in-terms of new[index] * weight
///
/// and backwards, with g[p] = e[label of p] * b[p] for places and g[s] = b[s] of this frame for
/// sums
///
///     value v: b[v] = sum over out-terms of g[index] * weight      (sums in descending order
///     first)
struct TrellisGraph {
  TrellisGraph(const Topology& topology, Side side);

  int32_t num_emitting = 0, num_values = 0, num_arcs = 0;
  /// The distinct labels of places, ascending, and for each place the position of its label there.
  std::vector<int32_t> labels;
  std::vector<int32_t> slot;
  /// The node of each value.
  std::vector<int32_t> node;
  /// The values of start and accept nodes.
  std::vector<int32_t> start, accept;
  /// In each row the terms that lead to places come first; those to sums begin at `middle`.
  Rows out;
  Buffer<int32_t> middle;
  /// By the value a term leads to, made on first need.
  const Rows& in() const;
  /// Whether something leads to a sum.
  bool is_entered(int32_t sum) const { return is_entered_[sum - num_emitting]; }
  /// Whether epsilon arcs form a cycle; then there is no such form, and all the above is empty.
  bool has_epsilon_cycle = false;

  /// For places in a row whose arcs all span one of few distances: those distances (value of the
  /// place minus value of the source), ascending. Empty if the graph is not of that kind.
  std::vector<int32_t> offsets;
  /// Whether nearly every place leads to every place, and sums matter only at the ends.
  bool is_dense = false;
  /// Share of the trellis cells of a product with `frames` frames that lie on an accepted path, if
  /// the graph has no cycle; 1 otherwise.
  double occupancy(int32_t frames) const;

 private:
  mutable std::once_flag in_once_;
  mutable Rows in_;
  std::vector<bool> is_entered_;

  void build(const Topology& topology, Side side);
  /// Sets `labels` and `slot`.
  void set_labels(std::vector<int32_t> of_places);
  bool has_inner_sums() const;
  void find_offsets();
  void find_density();
  void find_spans();
  /// How many frames the ways from a start to a place, and on to an accept node, may take.
  struct Span {
    int32_t least_before, most_before, least_after, most_after;
  };
  /// Of each place; empty if the graph has a cycle.
  std::vector<Span> spans_;
};

}  // namespace arcgrad::trellis
