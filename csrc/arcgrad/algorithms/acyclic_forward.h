#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "arcgrad/core/topology.h"
#include "arcgrad/core/weights.h"

namespace arcgrad {

/// Whether many arcs go to nodes that are not in the caches when the nodes they leave are visited
/// one after the other. Looks at the arcs of some nodes.
bool reaches_far(const Adjacency& out);

/// Asks for what such arcs will read, in the second cache: the first has few places for what is
/// still on its way, and the arcs themselves need them.
inline void expect_far(const void* memory) { __builtin_prefetch(memory, 0, 2); }

/// The forward sweep in the log semiring where arcs lie in the order of the nodes they leave, and
/// that order is topological: every node adds to those after it, so that arcs are read one after
/// the other.
///
/// What arrives at a node is a plain number times a unit 2^(256 i), so that adding takes little
/// care of exponents. Shares below 1e-190 may be lost, and below 1e-80 where weights come near
/// kPlainExp.
class AcyclicForward {
 public:
  /// Nothing if a weight is neither -inf nor at most kPlainExp in size. `out` has to stay, and has
  /// arc k in slot k.
  static std::optional<AcyclicForward> run(const Adjacency& out, const Weights& weights,
                                           std::span<const int32_t> sources, bool keep);

  double score(int32_t node) const;
  // As in PathScores.
  void pull_back(const Buffer<double>& seed, Weights& grad) const;
  Buffer<double> push_forward(const Weights& direction) const;
  void pull_back_moved(const Buffer<double>& seed, const Buffer<double>& seed_moved,
                       const Weights& direction, const Buffer<double>& moved, double factor,
                       Weights& grad) const;

 private:
  /// What belongs to a node, side by side because nodes are read in any order.
  struct Sum {
    double value = 0.0;
    int64_t unit = kNoUnit;
  };
  /// The unit of a sum before anything is added: below all others.
  static constexpr int64_t kNoUnit = -(int64_t{1} << 40);

  explicit AcyclicForward(const Adjacency& out) : out_(&out) {}
  int32_t num_nodes() const { return static_cast<int32_t>(sums_.size()); }
  template <bool keep, bool is_far, class T>
  bool push(const T* weight, std::span<const int32_t> sources);
  template <class Puller, bool set, bool is_far, class T>
  void pull(const Buffer<double>& seed, T* out) const;

  const Adjacency* out_;
  bool reaches_far_ = false;
  Buffer<Sum> sums_;
  int64_t lowest_unit_ = 0, highest_unit_ = 0;  // of the nodes reached, if any
  /// Of each arc the term it adds to a node, in the unit of the node it comes from. The buffer is
  /// that of weights because that one is fast to get.
  Weights terms_;
};

}  // namespace arcgrad
