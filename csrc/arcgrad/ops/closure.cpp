#include "arcgrad/algorithms/closure.h"

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph closure(const Graph& graph) {
  constexpr const char* kOp = "closure";
  require_ends(kOp, graph.topology());
  return closure_as(kOp, has_empty_path(graph.topology()) ? without_empty_path(kOp, graph) : graph);
}

}  // namespace arcgrad
