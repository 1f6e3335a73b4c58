#pragma once

// The forward recursion in the log semiring for the most common graphs: acyclic, with arcs stored
// in the order of their source nodes, and that order topological. PathScores uses it where it can.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arcgrad/autograd/rule.h"
#include "arcgrad/core/topology.h"
#include "arcgrad/core/weights.h"

namespace arcgrad {

/// Whether many arcs end at nodes that are probably not in the cache. Samples the arcs.
bool reaches_far(const Adjacency& out);

/// Prefetches data of a far node into the second-level cache. The first level has few line fill
/// buffers, and the arcs themselves need them.
inline void prefetch_far(const void* address) { __builtin_prefetch(address, 0, 2); }

/// Scores of all paths from the sources to each node, with first and second derivatives.
class AcyclicForward {
 public:
  /// Returns nothing if the magnitude of a finite weight exceeds kPlainExp, or if a weight is NaN
  /// or +inf. Arc k must be in slot k of `out`, which must outlive the result. `source_weights` is
  /// as in PathOptions. `keep` stores what the derivatives need.
  static std::optional<AcyclicForward> run(const Adjacency& out, const Weights& weights,
                                           std::span<const int32_t> sources, int32_t source_weights,
                                           bool keep);

  double score(int32_t node) const;
  // Derivatives: see PathScores.
  void add_vjp(const Buffer<double>& seed, Gradient& grad) const;
  Buffer<double> jvp(const Weights& tangent) const;
  void add_vjp_tangent(const Buffer<double>& seed, const Buffer<double>& seed_tangent,
                       const Weights& tangent, const Buffer<double>& score_tangent, double factor,
                       Weights& grad) const;

 private:
  /// The sum at a node is value * 2^(256 unit). One struct, since nodes are read in random order.
  struct NodeSum {
    double value = 0.0;
    int64_t unit = kNoUnit;
  };
  /// The derivative with respect to a node's sum: mass * 2^(-256 unit).
  struct NodeFlow {
    double mass;
    int64_t unit;
  };
  /// The unit of an empty sum: below all others.
  static constexpr int64_t kNoUnit = -(int64_t{1} << 40);

  /// The term that a source with a weight adds to the sum of its node.
  struct SourceTerm {
    int32_t node, weight;  // the index of the weight
    NodeSum term;
  };

  explicit AcyclicForward(const Adjacency& out) : out_(&out) {}
  bool set_sources(const Weights& weights, std::span<const int32_t> sources, int32_t first_weight);
  int32_t num_nodes() const { return static_cast<int32_t>(sums_.size()); }
  template <bool keep, bool is_far, class T>
  bool push(const T* weight);
  template <bool set, bool is_far, class T>
  void pull(const Buffer<double>& seed, std::span<T> out) const;

  const Adjacency* out_;
  bool reaches_far_ = false;
  Buffer<NodeSum> sums_;
  std::vector<SourceTerm> sources_;  // empty if sources have no weights
  /// For each arc the term it adds to its destination, in the unit of its source. Stored as Weights
  /// because these buffers are recycled.
  Weights terms_;
};

}  // namespace arcgrad
