#include "arcgrad/algorithms/connect.h"

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph connect(const Graph& graph) {
  const TopologyPtr& topology = graph.topology_ptr();
  const Connected& connected = arcgrad::connected(*topology);
  if (!connected.topology) return record_moves("connect", topology, {{graph, ArcMap::identity()}});
  return record_moves("connect", connected.topology,
                      {{graph, ArcMap::gather(topology, connected.arcs)}});
}

}  // namespace arcgrad
