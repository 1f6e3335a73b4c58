#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arcgrad/autograd/tape.h"

namespace arcgrad {

/// Which input arc each output arc takes its weight from.
///
/// Gather form: output arc k takes input arc `arcs[k]`, or nothing if that is -1 or there are
/// fewer. Without `arcs`, output arc `offset` + a takes input arc a. The transpose sends weights
/// the other way.
class ArcMap {
 public:
  static ArcMap identity(int32_t offset = 0) { return {nullptr, {}, offset, false}; }
  template <class Ints = std::vector<int32_t>>
  static ArcMap gather(Ints arcs) {
    auto owner = std::make_shared<const Ints>(std::move(arcs));
    return gather(owner, *owner);
  }
  /// The same for arcs that `owner` keeps alive.
  static ArcMap gather(std::shared_ptr<const void> owner, std::span<const int32_t> arcs) {
    return {std::move(owner), arcs, 0, false};
  }
  ArcMap transpose() const { return {owner_, arcs_, offset_, !transposed_}; }
  /// Whether output arc k is input arc k, for all of them if there are equally many.
  bool is_identity() const { return !owner_ && offset_ == 0; }
  /// Whether it sends weights to listed arcs, as the transpose of a gather does.
  bool is_scatter() const { return owner_ && transposed_; }
  /// Whether it moves all weights together, by the same number of arcs.
  bool is_shift() const { return !owner_; }
  /// For any other map: the arcs that output arcs take, or if there are none, what to add to an
  /// output arc for its input arc.
  std::span<const int32_t> arcs() const { return arcs_; }
  int64_t shift() const { return transposed_ ? offset_ : -int64_t{offset_}; }
  /// Adds `factor` times the moved `from` to `to`.
  void apply(const Weights& from, Weights& to, double factor) const;

 private:
  ArcMap(std::shared_ptr<const void> owner, std::span<const int32_t> arcs, int32_t offset,
         bool transposed)
      : owner_(std::move(owner)), arcs_(arcs), offset_(offset), transposed_(transposed) {}
  std::shared_ptr<const void> owner_;  // null for the identity
  std::span<const int32_t> arcs_;
  int32_t offset_;
  bool transposed_;
};

/// An input of an op that moves weights: output += factor * map(graph).
struct Moved {
  Graph graph;
  ArcMap map;
  double factor = 1.0;
};

/// The sum of what the inputs move, for `size` output arcs.
Weights move_weights(int64_t size, DType dtype, std::span<const Moved> inputs);
/// The rule of an op that only moves weights.
std::unique_ptr<Rule> make_moves_rule(std::span<const Moved> inputs);

/// Records an op that only moves weights. The gradient follows the maps backwards, so such an op
/// needs no rule of its own. The output has the widest dtype of its inputs.
Graph record_moves(const char* op, TopologyPtr topology, std::vector<Moved> inputs);
/// The same for a fresh topology.
Graph record_moves(const char* op, Arrays arrays, std::vector<Moved> inputs);

/// The same weights in another type.
Graph record_cast(const Graph& graph, DType dtype);

}  // namespace arcgrad
