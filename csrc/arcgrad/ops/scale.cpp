#include <cmath>

#include "arcgrad/elementwise.h"
#include "arcgrad/error.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph scale(const Graph& graph, double factor) {
  require(std::isfinite(factor), "scale", "the factor must be finite, but it is ", factor);
  return record_moves("scale", graph.topology_ptr(),
                      {{widen_score(graph), ArcMap::identity(), factor}}, When::at_first_look);
}

}  // namespace arcgrad
