#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph arc_sort(const Graph& graph, bool olabel) {
  const Side side = olabel ? Side::output : Side::input;
  const TopologyPtr& topology = graph.topology_ptr();
  const TopologyPtr& sorted = topology->sorted(side);
  if (!sorted) return record_moves("arc_sort", topology, {{graph, ArcMap::identity()}});
  const Column& arcs = topology->index(side).arc;
  return record_moves(
      "arc_sort", sorted,
      {{graph, topology->has_node_weights() ? ArcMap::gather(with_node_weights(arcs, *topology))
                                            : ArcMap::gather(topology, arcs)}});
}

}  // namespace arcgrad
