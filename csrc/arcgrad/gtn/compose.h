#pragma once

// Composition with the nodes and arcs of gtn, in the order of gtn.

#include "arcgrad/core/graph.h"
#include "arcgrad/gtn/arc_order.h"
#include "arcgrad/runtime/thresholds.h"

namespace arcgrad::gtn {

/// A graph and the order of its arcs.
struct Ordered {
  const Graph& graph;
  ArcOrder order;
};

/// The composition, or with `is_intersection` gtn's intersection, which differs only in the marks
/// that it reads. A product with emissions that may have many arcs is deferred.
Graph compose(const Ordered& first, const Ordered& second, bool is_intersection);

/// The order of the arcs of the graph of a product, which decides that of the arcs of the product.
ArcOrder order_of(const Product& product);

/// Whether the composition of two graphs is deferred.
bool is_deferred(const Graph& first, const Graph& second);
/// Whether a graph is a deferred product that may have more than `most_arcs` arcs.
bool is_large_product(const Graph& graph, int64_t most_arcs = thresholds.deferred_product);

}  // namespace arcgrad::gtn
