#include "arcgrad/ops.h"
#include "arcgrad/tape.h"

namespace arcgrad {

Graph project_input(const Graph& graph) {
  const Topology& t = graph.topology();
  if (t.is_acceptor())
    return record_moves("project_input", graph.topology_ptr(), {{graph, ArcMap::identity()}});
  Arrays arrays = t.arrays();
  arrays.olabel.clear();
  return record_moves("project_input", std::move(arrays), {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
