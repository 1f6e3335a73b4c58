#include <algorithm>
#include <numeric>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph reverse(const Graph& graph) {
  const Topology& t = graph.topology();
  require_no_failures("reverse", t);
  auto reversed =
      std::make_shared<Topology>(graph.topology_ptr(), Topology::Change{.is_reversed = true});
  if (!t.has_node_weights())
    return record_moves("reverse", std::move(reversed), {{graph, ArcMap::identity()}});
  // Arcs keep their numbers, and start weights change places with accept weights.
  Column weights(static_cast<size_t>(t.num_weights()));
  std::iota(weights.begin(), weights.end(), 0);
  std::rotate(weights.begin() + t.first_start_weight(), weights.begin() + t.first_accept_weight(),
              weights.end());
  return record_moves("reverse", std::move(reversed),
                      {{graph, ArcMap::gather(std::move(weights))}});
}

}  // namespace arcgrad
