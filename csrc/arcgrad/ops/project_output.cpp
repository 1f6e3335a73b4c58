#include "arcgrad/ops.h"
#include "arcgrad/tape.h"

namespace arcgrad {

Graph project_output(const Graph& graph) {
  const Topology& t = graph.topology();
  if (t.is_acceptor())
    return record_moves("project_output", graph.topology_ptr(), {{graph, ArcMap::identity()}});
  Arrays arrays = t.arrays();
  arrays.ilabel = std::move(arrays.olabel);
  arrays.olabel.clear();
  return record_moves("project_output", std::move(arrays), {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
