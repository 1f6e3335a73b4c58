#include "arcgrad/algorithms/connect.h"

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph connect(const Graph& graph) {
  const TopologyPtr& topology = graph.topology_ptr();
  // Without an arc to a dead end its node would back off.
  require_no_failures("connect", *topology);
  const Connected& connected = arcgrad::connected(*topology);
  if (!connected.topology) return record_moves("connect", topology, {{graph, ArcMap::identity()}});
  return record_moves("connect", connected.topology,
                      {{graph, ArcMap::gather(topology, connected.arcs)}});
}

}  // namespace arcgrad
