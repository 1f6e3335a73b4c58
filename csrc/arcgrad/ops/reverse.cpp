#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

namespace arcgrad {

Graph reverse(const Graph& graph) {
  const Topology::Change change{.is_reversed = true};
  return record_moves("reverse", std::make_shared<Topology>(graph.topology_ptr(), change),
                      {{graph, ArcMap::identity()}});
}

}  // namespace arcgrad
