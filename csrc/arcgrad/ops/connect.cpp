#include "arcgrad/ops.h"
#include "arcgrad/tape.h"

namespace arcgrad {

Graph connect(const Graph& graph) {
  const TopologyPtr& topology = graph.topology_ptr();
  const Trimmed& trimmed = topology->trimmed();
  if (!trimmed.topology) return record_moves("connect", topology, {{graph, ArcMap::identity()}});
  return record_moves("connect", trimmed.topology,
                      {{graph, ArcMap::gather(topology, trimmed.arcs)}});
}

}  // namespace arcgrad
