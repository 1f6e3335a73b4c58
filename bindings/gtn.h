#pragma once

// The class Graph of arcgrad.gtn.

#include <map>
#include <memory>

#include "arcgrad/gtn/arc_order.h"
#include "common.h"

namespace arcgrad::bindings {

/// What all handles of gtn on one graph have in common.
struct GtnShared {
  gtn::ArcOrder order;
  /// The float32 copies of weights whose addresses were returned, by their numbers of arcs. They
  /// live as long as any handle on the graph.
  std::map<int64_t, std::unique_ptr<float[]>> copies;
  /// The same for the gradient, whose addresses live as long as the graph, too.
  std::shared_ptr<GtnShared> grad;
};

/// A graph with gtn's methods. Used under the GIL.
struct GtnGraph : Graph {
  using Graph::Graph;
  explicit GtnGraph(Graph graph) : Graph(std::move(graph)) {}

  GtnShared& share() const {
    if (!shared) shared = std::make_shared<GtnShared>();
    return *shared;
  }

  mutable std::shared_ptr<GtnShared> shared;  // null until it is needed
};

/// A result of gtn: it keeps its gradient, unless it is a large product.
GtnGraph to_gtn(Graph graph);

/// A graph from Python that edits by other threads do not change, and the order of its arcs.
struct GtnInput {
  Graph graph = nullptr;
  gtn::ArcOrder order;
};

void init_gtn_graph(nb::module_& m);

}  // namespace arcgrad::bindings

namespace nanobind::detail {

template <>
struct type_caster<arcgrad::bindings::GtnInput> {
  NB_TYPE_CASTER(arcgrad::bindings::GtnInput, make_caster<arcgrad::Graph>::Name)

  bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<arcgrad::Graph> graph;
    if (!graph.from_python(source, flags, cleanup)) return false;
    const auto& found = graph.operator arcgrad::Graph&();
    value.graph = found.snapshot();
    value.order = {};
    if (isinstance<arcgrad::bindings::GtnGraph>(source))
      if (const auto& shared = static_cast<const arcgrad::bindings::GtnGraph&>(found).shared)
        value.order = shared->order;
    return true;
  }
};

}  // namespace nanobind::detail
