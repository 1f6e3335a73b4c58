#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/ops.h"
#include "arcgrad/trellis/viterbi.h"

namespace arcgrad {

Graph viterbi_path(const Graph& graph) {
  if (!graph.product()) return viterbi_path_of_arcs("viterbi_path", graph);
  return trellis::viterbi_paths("viterbi_path", {graph})[0];
}

std::vector<Graph> viterbi_path(const std::vector<Graph>& graphs) {
  return trellis::viterbi_paths("viterbi_path", graphs);
}

}  // namespace arcgrad
