#pragma once

#include <atomic>
#include <memory>

#include "arcgrad/autograd/tape.h"
#include "arcgrad/runtime/fork_safe_once.h"

namespace arcgrad {

/// The composition of a graph with emissions (a dense linear graph), in either order, that is put
/// off until somebody looks at its arcs. Scores are computed from the factors without ever building
/// it.
class Product {
 public:
  /// One of the two must be a dense linear graph; both are kept as they are now.
  Product(const char* op, const Graph& first, const Graph& second);

  const char* op() const { return op_; }
  const Graph& first() const { return first_; }
  const Graph& second() const { return second_; }
  const Graph& graph() const { return is_emissions_first_ ? second_ : first_; }
  const Graph& emissions() const { return is_emissions_first_ ? first_ : second_; }
  /// The side of the graph's arcs that is matched with the emissions.
  Side side() const { return is_emissions_first_ ? Side::input : Side::output; }
  DType dtype() const { return promote(first_.dtype(), second_.dtype()); }

  struct Built {
    TopologyPtr topology;
    Weights weights;
    std::unique_ptr<const Rule> rule;
  };
  /// The arcs and weights, built at the first call.
  const Built& built() const;
  bool is_built() const { return once_.is_done(); }

  /// Whether this product was composed with another graph and left out of the result's history.
  bool is_bypassed() const { return is_bypassed_; }
  void bypass() const { is_bypassed_ = true; }

 private:
  const char* op_;
  Graph first_, second_;
  bool is_emissions_first_;
  mutable ForkSafeOnce once_;
  mutable Built built_;
  mutable std::atomic<bool> is_bypassed_{false};
};

/// The composition as a product if it can be put off; no graph otherwise. If one of the two is a
/// product already, the other one is composed with its graph, where labels allow, so that the order
/// of writing does not matter.
Graph defer_product(const char* op, const Graph& first, const Graph& second);

}  // namespace arcgrad
