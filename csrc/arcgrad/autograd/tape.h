#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "arcgrad/autograd/rule.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/grad_mode.h"

namespace arcgrad {

struct Entry;

/// An array outside that leaves take their weights from, such as a tensor of emissions. The
/// gradients of its leaves are parts of one buffer, which is the gradient of the array.
struct ExternalArray {
  /// What the array belongs to.
  std::shared_ptr<const void> owner;
  DType dtype = DType::float32;
  /// Each leaf is a matrix of at most so many rows; it may have fewer, and the rest is padding.
  int64_t rows = 0, cols = 0;
  /// From one leaf to the next and from one row to the next, in entries of the gradient.
  int64_t leaf_stride = 0, row_stride = 0;
  /// Where leaves of one row each begin and the last one ends, if they are of different sizes.
  std::vector<int64_t> bounds;
  /// The topologies of the leaves.
  std::vector<TopologyPtr> leaves;

  int64_t size() const {
    return bounds.empty() ? static_cast<int64_t>(leaves.size()) * rows * cols : bounds.back();
  }
  /// Where the gradient of a leaf begins.
  int64_t begin(size_t leaf) const {
    return bounds.empty() ? static_cast<int64_t>(leaf) * leaf_stride : bounds[leaf];
  }
  int64_t num_cols(size_t leaf) const {
    return bounds.empty() ? cols : bounds[leaf + 1] - bounds[leaf];
  }
  /// The rows of a leaf that are no padding.
  int64_t num_rows(size_t leaf) const;
};

/// Leaves with these weights, one per topology of `source`, whose gradients go to it.
std::vector<Graph> make_leaves(const std::shared_ptr<const ExternalArray>& source,
                               std::span<const Weights> weights, bool calc_grad);

/// The identity of a graph on the tape: a leaf, or an output of an entry.
struct Var {
  ~Var();
  /// The number of weights of the graph.
  int64_t num_weights() const;

  std::shared_ptr<Entry> entry;
  int32_t output = 0;
  int64_t size = 0;
  std::shared_ptr<const Product> product;  // knows the size if the graph is one
  DType dtype = DType::float32;
  bool calc_grad = true;
  bool retain_grad = false;
  /// Of a leaf: where its weights come from, and which of the leaves there it is.
  std::shared_ptr<const ExternalArray> source;
  size_t leaf = 0;
  /// Where backward() stores the gradient. Weak, so that a gradient which is itself on the tape
  /// does not keep its own leaf alive.
  std::weak_ptr<GraphState> state;
};

/// What a Graph handle points to.
struct GraphState {
  TopologyPtr topology;  // null if the graph is a product
  Weights weights;
  std::shared_ptr<const Product> product;
  bool calc_grad = false;
  bool is_snapshot = false;
  std::shared_ptr<Var> var;
  std::shared_ptr<GraphState> grad;
  std::mutex mutex;
};

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

/// Whether an op on these inputs is recorded: gradients are on, and some input wants one.
bool tracks(std::span<const Graph> inputs);
inline bool tracks(const Graph& input) { return tracks({&input, 1}); }

/// Records an op with a rule of its own. `rule` may be null if the inputs are not tracked.
Graph record(const char* op, TopologyPtr topology, Weights weights, std::span<const Graph> inputs,
             std::unique_ptr<Rule> rule);

/// Puts an op with fresh outputs on the tape. The first `num_optional` inputs are products whose
/// factors are inputs too: their gradients are wanted only if somebody asks for them, and where
/// they are, what flows into them must not also flow into the factors.
void record_entry(const char* op, std::span<const Graph> outputs, std::span<const Graph> inputs,
                  size_t num_optional, std::unique_ptr<Rule> rule);

/// Differentiates `roots`, adding to the gradients of leaves and of graphs marked retain_grad().
/// `seeds` has one graph per root, or is empty for ones. Frees the tape unless told to retain it;
/// `create_graph` puts the gradients themselves on the tape.
void backward(std::span<const Graph> roots, std::span<const Graph> seeds = {},
              bool retain_graph = false, bool create_graph = false);
inline void backward(const Graph& root, bool retain_graph = false) {
  backward({&root, 1}, {}, retain_graph);
}

/// The gradients of `outputs` with respect to `inputs`. Stores nothing and frees nothing.
std::vector<Graph> grad(std::span<const Graph> outputs, std::span<const Graph> inputs,
                        std::span<const Graph> seeds = {}, bool create_graph = false);

/// The sources of all leaves that `graphs` were made from, in a fixed order.
std::vector<std::shared_ptr<const ExternalArray>> find_sources(std::span<const Graph> graphs);
/// The gradients of `outputs` with respect to sources: one buffer of `size()` entries for each.
std::vector<Weights> grad(std::span<const Graph> outputs,
                          std::span<const std::shared_ptr<const ExternalArray>> sources,
                          std::span<const Graph> seeds);
/// The same as graphs on the tape, one per leaf of each source.
std::vector<std::vector<Graph>> record_grad(
    std::span<const Graph> outputs, std::span<const std::shared_ptr<const ExternalArray>> sources,
    std::span<const Graph> seeds);

/// The Hessian of the sum of `outputs` times `vectors`, one vector per input.
std::vector<Graph> hvp(std::span<const Graph> outputs, std::span<const Graph> inputs,
                       std::span<const Graph> vectors);

/// Why a product that was composed again has no gradient.
inline constexpr char kBypassed[] =
    "the product was composed again or its best path was taken, and the result was computed "
    "without "
    "it, so its gradient would lack that part; call retain_grad() on it before that, or use a "
    "clone";

}  // namespace arcgrad
