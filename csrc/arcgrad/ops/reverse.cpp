#include "arcgrad/ops.h"
#include "arcgrad/tape.h"

namespace arcgrad {

Graph reverse(const Graph& graph) {
  Arrays arrays = graph.topology().arrays();
  arrays.src.swap(arrays.dst);
  arrays.start.swap(arrays.accept);
  return record_moves("reverse", std::move(arrays), {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
