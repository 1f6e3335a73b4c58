#include <numeric>

#include "arcgrad/algorithms/distances.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph shortest_distance(const Graph& graph, bool reverse, Semiring semiring) {
  const TopologyPtr& topology = expanded(graph.topology_ptr());
  PathScores scores(topology, graph.weights(), reverse ? topology->accept() : topology->start(),
                    {.op = "shortest_distance",
                     .direction = reverse ? Direction::reverse : Direction::forward,
                     .semiring = semiring,
                     .keep = tracks(graph)});
  Column nodes(static_cast<size_t>(graph.num_nodes()));
  std::iota(nodes.begin(), nodes.end(), 0);
  return record_distances("shortest_distance", graph, {std::move(scores), {}, std::move(nodes)},
                          DType::float64);
}

}  // namespace arcgrad
