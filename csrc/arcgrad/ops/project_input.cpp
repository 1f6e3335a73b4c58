#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph project_input(const Graph& graph) {
  TopologyPtr topology = graph.topology_ptr();
  if (!topology->is_acceptor())
    topology = std::make_shared<Topology>(topology, Topology::Change{.olabel = Side::input});
  return record_moves("project_input", std::move(topology), {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
