#include "arcgrad/beside.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph closure(const Graph& graph) {
  Beside beside("closure", {graph}, 1);
  beside.arrays.start = beside.arrays.accept = {0};
  for (int32_t n : graph.topology().start()) beside.add_epsilon(0, beside.node(0, n));
  for (int32_t n : graph.topology().accept()) beside.add_epsilon(beside.node(0, n), 0);
  return std::move(beside).record();
}

}  // namespace arcgrad
