#include "arcgrad/algorithms/subsets.h"
#include "arcgrad/ops.h"

namespace arcgrad {

bool is_deterministic(const Graph& graph) { return is_deterministic(graph.topology()); }

}  // namespace arcgrad
