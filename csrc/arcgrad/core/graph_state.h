#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "arcgrad/core/topology.h"
#include "arcgrad/core/weights.h"

namespace arcgrad {

struct Entry;
struct ExternalArray;
struct GraphState;

/// A graph whose arcs are built on first access.
class Deferred {
 public:
  virtual ~Deferred() = default;
  struct Built {
    TopologyPtr topology;
    Weights weights;
  };
  virtual const Built& built() const = 0;
  virtual DType dtype() const = 0;

  /// Whether another result was computed from the parts of this graph, and so does not have it in
  /// its history.
  bool is_bypassed() const { return is_bypassed_; }
  void bypass() const { is_bypassed_ = true; }

 private:
  mutable std::atomic<bool> is_bypassed_{false};
};

/// Why a product that was composed again has no gradient.
inline constexpr char kBypassed[] =
    "the product was composed again or its best path was taken, and the result was computed "
    "without it, so its gradient would lack that part; call retain_grad() on it before that, or "
    "use a "
    "clone";

/// The identity of a graph on the tape: a leaf, or an output of an entry.
struct Var {
  ~Var();
  /// The number of weights of the graph.
  int64_t num_weights() const;

  std::shared_ptr<Entry> entry;
  int32_t output = 0;
  int64_t size = 0;
  std::shared_ptr<const Deferred> deferred;  // knows the size if the graph is deferred
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
  TopologyPtr topology;  // null if the graph is deferred
  Weights weights;
  std::shared_ptr<const Deferred> deferred;
  bool calc_grad = false;
  bool is_snapshot = false;
  std::shared_ptr<Var> var;
  std::shared_ptr<GraphState> grad;
  std::mutex mutex;
};

}  // namespace arcgrad
