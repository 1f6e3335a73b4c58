#include "arcgrad/algorithms/closure.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "arcgrad/algorithms/disjoint_union.h"

namespace arcgrad {

Graph closure_as(const char* op, const Graph& graph) {
  const Topology& t = graph.topology();
  const int64_t num_epsilon[] = {static_cast<int64_t>(t.start().size() + t.accept().size())};
  DisjointUnion joined(op, {graph}, 1, num_epsilon);
  joined.arrays.start = joined.arrays.accept = {0};
  for (int32_t n : t.start()) joined.add_epsilon({0}, {n, 0});
  for (int32_t n : t.accept()) joined.add_epsilon({n, 0}, {0});
  return std::move(joined).record();
}

bool has_empty_path(const Topology& t) {
  return !t.has_node_weights() &&
         std::ranges::any_of(t.start(), [&](int32_t n) { return t.is_accept(n); });
}

Graph without_empty_path(const char* op, const Graph& graph) {
  const Topology& t = graph.topology();
  const Adjacency& out = t.out();
  Arrays arrays;
  arrays.num_nodes = t.num_nodes();
  arrays.src.assign(t.src().begin(), t.src().end());
  arrays.dst.assign(t.dst().begin(), t.dst().end());
  arrays.ilabel.assign(t.ilabel().begin(), t.ilabel().end());
  arrays.olabel.assign(t.olabel().begin(), t.olabel().end());
  Column arcs(arrays.src.size());
  std::iota(arcs.begin(), arcs.end(), 0);
  for (const int32_t n : t.accept())
    if (!t.is_start(n) || t.num_in()[n] > 0) arrays.accept.push_back(n);
  for (const int32_t n : t.start()) {
    if (!t.is_accept(n) || t.num_in()[n] == 0) {
      arrays.start.push_back(n);
      continue;
    }
    // Paths that end at the node still do; those that start there have a node of their own.
    if (out.offset[n] == out.offset[n + 1]) continue;
    for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k) {
      const int32_t a = out.arc(k);
      arrays.src.push_back(arrays.num_nodes);
      arrays.dst.push_back(out.node[k]);
      arrays.ilabel.push_back(t.ilabel()[a]);
      arrays.olabel.push_back(t.olabel()[a]);
      arcs.push_back(a);
    }
    arrays.start.push_back(arrays.num_nodes++);
  }
  std::ranges::sort(arrays.start);
  require_size(op, "arcs", std::ssize(arcs));
  require_size(op, "nodes", arrays.num_nodes);
  return record_moves(op, std::move(arrays), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
