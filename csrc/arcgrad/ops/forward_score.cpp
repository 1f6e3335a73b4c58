#include "arcgrad/trellis/forward_score.h"

#include "arcgrad/algorithms/log_partition.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph forward_score(const Graph& graph) {
  if (!graph.product() && !is_emissions(graph))
    return forward_score_of_arcs("forward_score", graph);
  return trellis::forward_scores("forward_score", {graph})[0];
}

std::vector<Graph> forward_score(const std::vector<Graph>& graphs) {
  return trellis::forward_scores("forward_score", graphs);
}

}  // namespace arcgrad
