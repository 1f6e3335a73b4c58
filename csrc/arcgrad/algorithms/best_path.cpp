#include "arcgrad/algorithms/best_path.h"

#include "arcgrad/algorithms/path_scores.h"

namespace arcgrad {

BestPath find_best_path(const char* op, const Graph& graph) {
  const Topology& t = graph.topology();
  // Sweeping from the ends leaves at each node the first arc of the best way on.
  const PathScores sweep(graph.topology_ptr(), graph.weights(), t.accept(),
                         {.op = op,
                          .direction = Direction::reverse,
                          .semiring = Semiring::tropical,
                          .targets = t.start()});
  BestPath path;
  for (int32_t n : t.start()) {
    const double score = sweep.score(n);
    if (score == kNegInf || score < path.score) continue;
    if (score == path.score && !sweep.goes_before(n, path.start)) continue;
    path.score = score;
    path.start = n;
  }
  if (path.start >= 0) path.arcs = sweep.best_path(path.start);
  return path;
}

}  // namespace arcgrad
