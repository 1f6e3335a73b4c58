#pragma once

#include <memory>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/fork_safe_once.h"

namespace arcgrad {

/// The deferred composition of a graph with emissions (a dense linear graph), in either order.
/// Scores are computed from the factors without building it.
class Product final : public Deferred {
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
  DType dtype() const override { return promote(first_.dtype(), second_.dtype()); }

  const Built& built() const override;
  bool is_built() const { return once_.is_done(); }
  /// How the arcs are differentiated; builds them.
  const Rule& rule() const;

 private:
  const char* op_;
  Graph first_, second_;
  bool is_emissions_first_;
  mutable ForkSafeOnce once_;
  mutable Built built_;
  mutable std::unique_ptr<const Rule> rule_;
};

/// The composition recorded under the name of `op`, deferred where one of the two is emissions or
/// is itself deferred and labels allow to compose the graphs first.
Graph compose_as(const char* op, const Graph& first, const Graph& second);

}  // namespace arcgrad
