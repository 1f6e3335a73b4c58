#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph clone(const Graph& graph) {
  return record_moves("clone", graph.topology_ptr(), {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
