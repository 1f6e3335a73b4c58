#include "arcgrad/ops.h"
#include "arcgrad/tape.h"

namespace arcgrad {

Graph invert(const Graph& graph) {
  const Topology& t = graph.topology();
  if (t.is_acceptor())
    return record_moves("invert", graph.topology_ptr(), {{graph, ArcMap::identity()}});
  Arrays arrays = t.arrays();
  arrays.ilabel.swap(arrays.olabel);
  return record_moves("invert", std::move(arrays), {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
