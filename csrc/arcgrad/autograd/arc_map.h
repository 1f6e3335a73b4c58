#pragma once

// Arc maps: ops whose output weights are sums of input weights need no rule of their own.
//
// Many ops copy arcs: union, concatenation, composition, closure, removal. For each input such an
// op keeps an ArcMap: a sparse 0/1 matrix with at most one 1 per row (gather) or per column
// (scatter, the transpose). The output is the sum over the inputs of factor * map * weights; the
// gradient is the transposed map times the delta. All derivatives are therefore arc maps too.
//
// Here an arc is an index among all weights of a graph, and a node weight counts as an arc.
//
// Invariant: the entries of a gather are arcs of the input, or -1 for output arcs that take none.
// Cost: O(output arcs) per input, and no memory for shifts and identities.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arcgrad/autograd/tape.h"

namespace arcgrad {

/// Which input arc each output arc takes its weight from.
///
/// A gather: output arc k takes input arc `arcs[k]`, or none if that is -1 or k >= arcs.size(). A
/// shift, without `arcs`: output arc `offset` + a takes input arc a. The transpose maps deltas of
/// the outputs to the inputs.
class ArcMap {
 public:
  static ArcMap identity(int32_t offset = 0) { return {nullptr, {}, offset, false}; }
  template <class Ints = std::vector<int32_t>>
  static ArcMap gather(Ints arcs) {
    auto owner = std::make_shared<const Ints>(std::move(arcs));
    return gather(owner, *owner);
  }
  /// The same for an array that `owner` keeps alive.
  static ArcMap gather(std::shared_ptr<const void> owner, std::span<const int32_t> arcs) {
    return {std::move(owner), arcs, 0, false};
  }
  ArcMap transpose() const { return {owner_, arcs_, offset_, !transposed_}; }
  /// Whether output arc k takes input arc k for every k that both have.
  bool is_identity() const { return !owner_ && offset_ == 0; }
  /// Whether it is the transpose of a gather: input arc k adds to output arc `arcs[k]`.
  bool is_scatter() const { return owner_ && transposed_; }
  /// Whether it has no `arcs`: output arc k takes input arc k + shift().
  bool is_shift() const { return !owner_; }
  std::span<const int32_t> arcs() const { return arcs_; }
  int64_t shift() const { return transposed_ ? offset_ : -int64_t{offset_}; }
  /// For a gather or a shift from an input of `size` weights: the one that output weight k takes,
  /// or -1.
  int64_t source(int32_t k, int64_t size) const {
    if (is_shift()) return k + shift() < size ? std::max<int64_t>(k + shift(), -1) : -1;
    return k < std::ssize(arcs_) ? arcs_[static_cast<size_t>(k)] : -1;
  }
  /// to += factor * map * from.
  void apply(const Weights& from, Weights& to, double factor) const;

 private:
  ArcMap(std::shared_ptr<const void> owner, std::span<const int32_t> arcs, int32_t offset,
         bool transposed)
      : owner_(std::move(owner)), arcs_(arcs), offset_(offset), transposed_(transposed) {}
  std::shared_ptr<const void> owner_;  // null for shifts
  std::span<const int32_t> arcs_;
  int32_t offset_;
  bool transposed_;
};

/// An input of an op that moves weights: output += factor * map * weights of graph.
struct Moved {
  Graph graph;
  ArcMap map;
  double factor = 1.0;
};

/// The output weights of an op that moves weights, for `size` weights.
Weights move_weights(int64_t size, DType dtype, std::span<const Moved> inputs);
/// The rule of an op that only moves weights.
std::unique_ptr<Rule> make_moves_rule(std::span<const Moved> inputs);

/// The output of an op that only moves weights, recorded if the inputs are tracked. It has the
/// widest dtype of the inputs.
Graph record_moves(const char* op, TopologyPtr topology, std::vector<Moved> inputs);
/// The same with a new topology. Without symbols it takes those of the inputs, which must agree.
Graph record_moves(const char* op, Arrays arrays, std::vector<Moved> inputs);

/// The same graph with weights of another dtype.
Graph record_cast(const Graph& graph, DType dtype);

}  // namespace arcgrad
