#include "arcgrad/ops.h"
#include "arcgrad/paths.h"
#include "arcgrad/viterbi.h"

namespace arcgrad {

Graph viterbi_path(const Graph& graph) {
  BestPath path = find_best_path("viterbi_path", graph);
  if (path.start < 0) return record_moves("viterbi_path", Arrays{}, {{graph, ArcMap::gather({})}});
  return record_path("viterbi_path", graph, std::move(path.arcs));
}

}  // namespace arcgrad
