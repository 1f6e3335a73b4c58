#include <utility>

#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

Graph delete_nodes(const Graph& graph, std::span<const int32_t> nodes) {
  const Topology& t = graph.topology();
  Column node(static_cast<size_t>(t.num_nodes()), 0), kept;
  for (const int32_t n : nodes) {
    require(n >= 0 && n < t.num_nodes(), "delete_nodes", "nodes must be below ", t.num_nodes(),
            ", the number of nodes, but one is ", n);
    node[n] = -1;
  }
  int32_t num_nodes = 0;
  for (int32_t& n : node)
    if (n == 0) n = num_nodes++;
  const auto src = t.src(), dst = t.dst();
  for (int32_t a = 0; a < t.num_arcs(); ++a)
    if (node[src[a]] >= 0 && node[dst[a]] >= 0) kept.push_back(a);
  Arrays arrays = renumber(t, node, num_nodes, kept);
  return record_moves("delete_nodes", std::move(arrays),
                      {{graph, ArcMap::gather(std::move(kept))}});
}

}  // namespace arcgrad
