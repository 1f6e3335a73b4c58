#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph negate(const Graph& graph) {
  return record_moves("negate", graph.topology_ptr(),
                      {{widen_score(graph), ArcMap::identity(), -1.0}});
}

}  // namespace arcgrad
