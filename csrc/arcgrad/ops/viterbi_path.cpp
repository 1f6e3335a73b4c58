#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/algorithms/path_chain.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/of_arcs.h"
#include "arcgrad/trellis/viterbi.h"

namespace arcgrad {

Graph viterbi_path_of_arcs(const char* op, const Graph& graph) {
  BestPath path = find_best_path(op, graph);
  if (path.start < 0) return record_moves(op, Arrays{}, {{graph, ArcMap::gather({})}});
  return record_path(op, graph, std::move(path.arcs));
}

Graph viterbi_path(const Graph& graph) {
  if (!graph.product()) return viterbi_path_of_arcs("viterbi_path", graph);
  return trellis::viterbi_paths("viterbi_path", {graph})[0];
}

std::vector<Graph> viterbi_path(const std::vector<Graph>& graphs) {
  return trellis::viterbi_paths("viterbi_path", graphs);
}

}  // namespace arcgrad
