#include "arcgrad/algorithms/expectation.h"
#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph expected(const Graph& graph, const Graph& costs) {
  require_same_structure("expected", graph.topology(), costs.topology());
  return record_expectation("expected", graph, partition_of("expected", graph), costs);
}

}  // namespace arcgrad
