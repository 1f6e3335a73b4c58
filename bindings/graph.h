#pragma once

// What the files that bind class Graph share.

#include "arcgrad/core/graph.h"
#include "common.h"

namespace arcgrad::bindings {

inline const char* name_of(DType dtype) { return dtype == DType::float32 ? "float32" : "float64"; }

/// Whether a graph is a lazy product that is not materialized yet.
inline bool is_unbuilt(const Graph& graph) {
  return graph.product() && !graph.product()->is_built();
}

/// Returns the graph after materializing it, without the GIL, if it is a lazy product.
const Graph& materialize(const Graph& graph);

/// `node` or `arc` as an int32. Throws unless the graph has it.
int32_t check_node(const Graph& graph, const char* op, int64_t node);
int32_t check_arc(const Graph& graph, const char* op, int64_t arc);

/// Binds Graph.from_arrays, linear_graph(s), scalar_graph and chain_graph.
void def_graph_constructors(nb::module_& m, nb::class_<Graph>& graph);
/// Binds the methods that read or replace nodes, arcs and weights.
void def_graph_access(nb::class_<Graph>& graph);

}  // namespace arcgrad::bindings
