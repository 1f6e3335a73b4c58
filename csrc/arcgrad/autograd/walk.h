#pragma once

// The walk over the tape that backward(), grad() and hvp() share. See walk.cpp.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "arcgrad/autograd/external_array.h"
#include "arcgrad/autograd/tape.h"
#include "arcgrad/runtime/key_index.h"

namespace arcgrad {

/// The part of the tape that some roots depend on, and the gradients that flow through it.
class Walk {
 public:
  using IsTarget = std::function<bool(const Var&)>;
  /// `is_target` tells for which variables a gradient is wanted.
  Walk(const char* op, std::span<const Graph> roots, const IsTarget& is_target);

  bool is_empty() const { return vars_.empty(); }
  /// The variables that the roots depend on, in a fixed order.
  const std::vector<std::shared_ptr<Var>>& vars() const { return vars_; }

  /// Computes first-order gradients: rules add to buffers, independent entries in parallel.
  void run(std::span<const Graph> seeds);
  /// Computes gradients as graphs on the tape, which can be differentiated again. Records them even
  /// under no_grad.
  void run_recorded(std::span<const Graph> seeds);

  /// The gradient of a target after a run; a null graph if it is zero.
  Graph gradient(const Var& var, const TopologyPtr& topology);
  /// The gradient of an external array after run().
  Weights gradient(const std::shared_ptr<const ExternalArray>& source);

  /// Frees the entries of the tape.
  void free();

 private:
  /// An entry of the tape.
  struct Node {
    std::shared_ptr<Entry> entry;
    std::shared_ptr<const Body> body;
    bool needed = false;          // whether it leads to a target
    bool keep = false;            // whether an output is a target
    std::vector<Gradient> sums;   // gradients of the outputs so far
    std::vector<Weights> deltas;  // the same once they are complete
    std::vector<Graph> recorded;  // in place of both in run_recorded()
  };

  void visit(std::shared_ptr<Var> var);
  Node& node_of(const Var& var) { return nodes_[entries_.find(var.entry.get())]; }
  bool is_target(const Var& var) const;
  /// Whether gradients must flow to a variable: it is a target or leads to one.
  bool is_wanted(const Var& var);
  /// The same for input i of an entry.
  bool is_wanted(const Body& body, size_t i);

  /// The gradient of a variable so far, or null.
  Gradient* find_gradient(const Var& var);
  /// The same; an empty sum if there is none yet.
  Gradient& gradient_of(const Var& var);
  /// The buffer for the gradients of all leaves of an external array.
  const Weights& buffer_of(const std::shared_ptr<const ExternalArray>& source);

  /// Runs the only entry of a level.
  void run_entry(size_t entry);
  /// Runs entries of one level. The gradient of an input that several of them have is summed in
  /// their order, so that the result does not depend on the threads.
  void run_level(std::span<const size_t> level);
  /// Adds the vector-Jacobian products of entries, whose rules have the same class, to `grads`.
  void add(std::span<const size_t> entries, std::span<std::vector<Gradient*>> grads) const;

  Graph* find_recorded(const Var& var);
  void add_recorded(const Var& var, const Graph& delta);

  const char* op_;
  std::span<const Graph> roots_;
  std::vector<Node> nodes_;
  std::vector<size_t> stack_, order_;  // of nodes: still to visit, and by descending level
  KeyIndex<const void*> entries_;      // numbers the nodes by their entries
  // Numbers the variables; the next four vectors have one element per variable.
  KeyIndex<const void*> seen_;
  std::vector<std::shared_ptr<Var>> vars_;
  std::vector<bool> is_target_;
  std::vector<Gradient> leaves_;        // gradients of leaves, in run()
  std::vector<Graph> recorded_leaves_;  // the same in run_recorded()
  KeyIndex<const void*> sources_;       // numbers the external arrays
  std::vector<Weights> buffers_;        // their gradients
};

}  // namespace arcgrad
