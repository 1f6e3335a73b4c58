#include <cmath>

#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

Graph scale(const Graph& graph, double factor) {
  require(std::isfinite(factor), "scale", "the factor must be finite, but it is ", factor);
  return record_moves("scale", graph.topology_ptr(),
                      {{widen_score(graph), ArcMap::identity(), factor}});
}

}  // namespace arcgrad
