#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/ops.h"
#include "arcgrad/trellis/viterbi.h"

namespace arcgrad {

Graph viterbi_score(const Graph& graph) {
  if (!graph.product()) return viterbi_score_of_arcs("viterbi_score", graph);
  return trellis::best_scores("viterbi_score", {graph})[0];
}

std::vector<Graph> viterbi_score(const std::vector<Graph>& graphs) {
  return trellis::best_scores("viterbi_score", graphs);
}

}  // namespace arcgrad
