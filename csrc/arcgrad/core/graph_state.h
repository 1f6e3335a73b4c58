#pragma once

// What a Graph handle points to, and its place on the tape.

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "arcgrad/core/topology.h"
#include "arcgrad/core/weights.h"

namespace arcgrad {

struct Entry;
struct ExternalArray;
struct GraphState;

/// A lazy graph, whose arcs and weights are built on first access.
class Deferred {
 public:
  virtual ~Deferred() = default;
  struct Built {
    TopologyPtr topology;
    Weights weights;
  };
  virtual const Built& built() const = 0;
  virtual DType dtype() const = 0;
  virtual bool has_node_weights() const = 0;

  /// Whether a result was computed from the inputs of this graph directly. This graph is then not
  /// on the tape of that result, and its gradient would be incomplete.
  bool is_bypassed() const { return is_bypassed_; }
  void bypass() const { is_bypassed_ = true; }

 private:
  mutable std::atomic<bool> is_bypassed_{false};
};

/// Why a bypassed product has no gradient.
inline constexpr char kBypassed[] =
    "the product was composed again or its best path was taken, and the result was computed "
    "directly from its factors, so its gradient would be incomplete; call retain_grad() on it "
    "before "
    "that, or use a clone";

/// The place of a graph on the tape: a leaf, or an output of an entry.
struct Var {
  ~Var();
  /// The number of weights of the graph.
  int64_t num_weights() const;

  std::shared_ptr<Entry> entry;  // null for a leaf
  int32_t output = 0;
  int64_t size = 0;
  std::shared_ptr<const Deferred> deferred;  // has the size if the graph is lazy
  DType dtype = DType::float32;
  bool calc_grad = true;
  bool retain_grad = false;
  /// For a leaf of an external array: the array, and the number of the leaf.
  std::shared_ptr<const ExternalArray> source;
  size_t leaf = 0;
  /// Where backward() stores the gradient. Weak, since a gradient that is on the tape itself would
  /// otherwise keep its own leaf alive.
  std::weak_ptr<GraphState> state;
};

/// The arcs at each node of a graph that is still being built, as linked lists: `last` arc of each
/// node, and for each arc the `previous` arc of its node, or -1. Arcs are only ever added, so the
/// lists grow with the graph.
struct ArcLists {
  std::vector<int32_t> last, previous;
};

/// The node weights of a graph that is being built, by the order of its start and accept nodes.
struct NodeWeights {
  std::vector<double> start, accept;
};

/// What a Graph handle points to.
struct GraphState {
  /// The weights, with node weights behind those of the arcs.
  const Weights& all_weights();

  TopologyPtr topology;  // null if the graph is lazy
  Weights weights;
  std::shared_ptr<const Deferred> deferred;
  bool calc_grad = false;
  bool is_snapshot = false;
  std::shared_ptr<Var> var;
  std::shared_ptr<GraphState> grad;
  /// If set, `weights` has those of the arcs only, so that adding an arc does not move node
  /// weights.
  std::unique_ptr<NodeWeights> node_weights;
  std::atomic<bool> has_own_node_weights{false};  // whether node_weights is set
  std::unique_ptr<ArcLists[]> arc_lists;          // null, or by source and by destination
  std::mutex mutex;
};

}  // namespace arcgrad
