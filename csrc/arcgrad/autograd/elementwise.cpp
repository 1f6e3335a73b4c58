// Sums of graphs, with errors that name the first difference of their structures.

#include "arcgrad/autograd/elementwise.h"

#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

/// Throws, naming the first difference between topologies of the same size.
[[noreturn]] void fail_structure(const char* op, const Topology& a, const Topology& b) {
  for (int32_t n = 0; n < a.num_nodes(); ++n)
    require(a.is_start(n) == b.is_start(n) && a.is_accept(n) == b.is_accept(n), op,
            "both graphs must have the same structure, but node ", n,
            " is a start or accept node in only one of them");
  int32_t arc = 0;
  while (a.src()[arc] == b.src()[arc] && a.dst()[arc] == b.dst()[arc] &&
         a.ilabel()[arc] == b.ilabel()[arc] && a.olabel()[arc] == b.olabel()[arc])
    ++arc;
  auto describe = [arc](const Topology& t) {
    return text(t.src()[arc], " -> ", t.dst()[arc], " with labels ", t.ilabel()[arc], ":",
                t.olabel()[arc]);
  };
  fail(op, "both graphs must have the same structure, but arc ", arc, " is ", describe(a),
       " in the first and ", describe(b), " in the second");
}

}  // namespace

Graph widen_score(const Graph& graph) {
  if (graph.dtype() == DType::float64 || graph.state()->deferred) return graph;
  const bool is_score = same_structure(graph.topology(), *scalar_topology());
  return is_score ? record_cast(graph, DType::float64) : graph;
}

void require_same_structure(const char* op, const Topology& a, const Topology& b) {
  require(a.has_node_weights() == b.has_node_weights(), op,
          "both graphs must have the same structure, but only the ",
          a.has_node_weights() ? "first" : "second", " has node weights");
  require(a.num_nodes() == b.num_nodes() && a.num_arcs() == b.num_arcs(), op,
          "both graphs must have the same structure, but the first has ", a.num_nodes(),
          " nodes and ", a.num_arcs(), " arcs, and the second ", b.num_nodes(), " nodes and ",
          b.num_arcs(), " arcs");
  if (!same_structure(a, b)) fail_structure(op, a, b);
}

Graph record_sum(const char* op, const Graph& first, const Graph& second, double factor) {
  require_same_structure(op, first.topology(), second.topology());
  return record_moves(op, first.topology_ptr(),
                      {{widen_score(first), ArcMap::identity()},
                       {widen_score(second), ArcMap::identity(), factor}});
}

}  // namespace arcgrad
