#pragma once

// Single-source shortest distances in the log and the tropical semiring, with derivatives.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "arcgrad/algorithms/acyclic_forward.h"
#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

/// Throws, naming `op` and the first arc or node whose weight is NaN or +inf, if there is one.
void require_scorable(const char* op, const Topology& topology, const Weights& weights);

/// The score of all paths from some source nodes to each node, and the derivatives of these scores
/// with respect to the weights.
class PathScores {
 public:
  /// Of node weights only those of the sources count, see PathOptions. Throws if a weight is NaN or
  /// +inf, naming the arc, or if a cycle diverges, naming its nodes.
  PathScores(TopologyPtr topology, const Weights& weights, std::span<const int32_t> sources,
             const PathOptions& options);

  double score(int32_t node) const { return acyclic_ ? acyclic_->score(node) : table_.score(node); }

  // In the tropical semiring:
  /// Whether the best path of a node precedes the best path of another node with the same score: in
  /// one component by fewer arcs in it, else by the id of the last arc.
  bool precedes(int32_t node, int32_t other) const;
  /// The arcs of the best path that arrives at a node, the last one first, then the weight of its
  /// source if it has one. Of equally good paths, the one whose last arc is first; in a cycle, the
  /// shortest.
  Column best_path(int32_t node) const;

  /// Calls `visit` for the arcs on paths to a node; in the tropical semiring, on the best path.
  template <class Visit>
  void for_arcs_to(int32_t node, const Visit& visit) const {
    if (!table_.best_slot.empty()) {
      for (const int32_t a : best_path(node)) visit(a);
      return;
    }
    const Adjacency& in = table_.adjacency ? slots() : topology().in();
    std::vector<int32_t> stack{node};
    std::unordered_set<int32_t> seen{node};
    while (!stack.empty()) {
      const int32_t n = stack.back();
      stack.pop_back();
      for (int32_t k = in.offset[n]; k < in.offset[n + 1]; ++k) {
        visit(in.arc(k));
        if (seen.insert(in.node[k]).second) stack.push_back(in.node[k]);
      }
    }
  }

  // In the reverse direction, with `keep`:
  /// The arcs by which paths arrive at each node.
  const Adjacency& slots() const { return *table_.adjacency; }
  /// The local posterior of the arc in `slot` of `node`: its part of the sum score(node).
  double local_posterior(int32_t node, int32_t slot) const {
    return table_.term[slot] * table_.inverse_sum[node];
  }
  const Topology& topology() const { return *table_.topology; }

  // With `keep`:
  /// Adds to `grad` the vector-Jacobian product: the gradient of the sum of seed[n] * score(n).
  void add_vjp(Buffer<double> seed, Gradient& grad) const;
  /// The Jacobian-vector product: the derivative of each score along `tangent`.
  Buffer<double> jvp(const Weights& tangent) const;
  /// Adds to `grad` `factor` times the derivative of the result of add_vjp(seed) along `tangent`
  /// and `seed_tangent`; `score_tangent` is jvp(tangent).
  void add_vjp_tangent(Buffer<double> seed, Buffer<double> seed_tangent, const Weights& tangent,
                       const Buffer<double>& score_tangent, double factor, Weights& grad) const;

 private:
  void set_source_weights(const Weights& weights, std::span<const int32_t> sources, int32_t first);

  PathTable table_;
  /// If set, it has the scores and terms, and `table_` the topology only.
  std::optional<AcyclicForward> acyclic_;
};

}  // namespace arcgrad
