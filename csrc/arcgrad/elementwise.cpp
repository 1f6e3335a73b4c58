#include "arcgrad/elementwise.h"

#include "arcgrad/error.h"

namespace arcgrad {

Graph record_sum(const char* op, const Graph& first, const Graph& second, double factor) {
  const Topology &a = first.topology(), &b = second.topology();
  require(a.num_nodes() == b.num_nodes() && a.num_arcs() == b.num_arcs(), op,
          "both graphs must have the same structure, but the first has ", a.num_nodes(),
          " nodes and ", a.num_arcs(), " arcs, and the second ", b.num_nodes(), " nodes and ",
          b.num_arcs(), " arcs");
  require(same_structure(a, b), op,
          "both graphs must have the same structure, but their arcs, starts or accepts differ");
  return record_moves(op, first.topology_ptr(),
                      {{first, ArcMap::identity()}, {second, ArcMap::identity(), factor}});
}

}  // namespace arcgrad
