#include "arcgrad/ops.h"
#include "arcgrad/tape.h"

namespace arcgrad {

Graph negate(const Graph& graph) {
  return record_moves("negate", graph.topology_ptr(), {{graph, ArcMap::identity(), -1.0}},
                      When::at_first_look);
}

}  // namespace arcgrad
