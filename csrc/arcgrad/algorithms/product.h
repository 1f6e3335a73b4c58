#pragma once

// Composition as an op. The composition with emissions is lazy.

#include <functional>
#include <memory>
#include <optional>

#include "arcgrad/algorithms/compose_topologies.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/fork_safe_once.h"

namespace arcgrad {

/// How to compose two topologies: compose_topologies(), or a function with another order of arcs.
using Compose = std::function<Composed(const char* op, const Topology&, const Topology&)>;
/// compose_topologies() with its limit.
Compose compose_within(std::optional<int64_t> max_arcs = std::nullopt);

/// The lazy composition of a graph with emissions (a dense linear graph), in either order. Scores
/// are computed from the two factors without building its arcs.
class Product final : public Deferred {
 public:
  /// Exactly one of the two is a dense linear graph. Keeps snapshots of both.
  Product(const char* op, const Graph& first, const Graph& second, Compose compose);

  const char* op() const { return op_; }
  const Graph& first() const { return first_; }
  const Graph& second() const { return second_; }
  const Graph& graph() const { return is_emissions_first_ ? second_ : first_; }
  const Graph& emissions() const { return is_emissions_first_ ? first_ : second_; }
  /// The side of graph() whose labels are matched with the emissions.
  Side side() const { return is_emissions_first_ ? Side::input : Side::output; }
  DType dtype() const override { return promote(first_.dtype(), second_.dtype()); }
  const SymbolTables& symbols() const { return symbols_; }
  const Compose& compose() const { return compose_; }
  bool has_node_weights() const override { return graph().has_node_weights(); }

  const Built& built() const override;
  bool is_built() const { return once_.is_done(); }
  /// The rule from the arcs to the factors. Builds the arcs.
  const Rule& rule() const;

 private:
  const char* op_;
  Graph first_, second_;
  bool is_emissions_first_;
  SymbolTables symbols_;
  Compose compose_;
  mutable ForkSafeOnce once_;
  mutable Built built_;
  mutable std::unique_ptr<const Rule> rule_;
};

/// The symbols of a graph, without building its arcs if it is a product.
const SymbolTables& symbols_of(const Graph& graph);
/// The symbols of a composition: those of the input labels of `first` and the output labels of
/// `second`. Labels that an acceptor passes on keep their symbols. Throws unless the symbols of
/// the labels that are matched agree.
SymbolTables compose_symbols(const char* op, const Graph& first, const Graph& second);
/// Whether one of two explicit graphs is emissions, so that their composition is a product.
bool is_deferrable(const Graph& first, const Graph& second);
/// The composition, recorded under the name of `op`. It is deferred if is_deferrable(), or if one
/// of the two is a product whose graph can be composed with the other one first.
Graph compose_as(const char* op, const Graph& first, const Graph& second,
                 const Compose& compose = compose_within());
/// The same without deferring anything.
Graph compose_eagerly(const char* op, const Graph& first, const Graph& second,
                      const Compose& compose = compose_within());
/// The same for two acceptors; fails for other graphs.
Graph intersect_as(const char* op, const Graph& first, const Graph& second,
                   const Compose& compose = compose_within());

}  // namespace arcgrad
