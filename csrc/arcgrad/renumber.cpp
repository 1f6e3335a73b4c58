#include "arcgrad/renumber.h"

#include <algorithm>

namespace arcgrad {

Graph record_renumbered(const char* op, const Graph& graph, const std::vector<int32_t>& node,
                        int32_t num_nodes, Column arcs) {
  const Topology& t = graph.topology();
  Arrays out;
  out.num_nodes = num_nodes;
  auto rename = [&](std::span<const int32_t> nodes, Column& to) {
    for (int32_t n : nodes)
      if (node[n] >= 0) to.push_back(node[n]);
    std::sort(to.begin(), to.end());
  };
  rename(t.start(), out.start);
  rename(t.accept(), out.accept);
  const size_t count = arcs.size();
  const auto src = t.src(), dst = t.dst(), ilabel = t.ilabel(), olabel = t.olabel();
  out.src.resize(count);
  out.dst.resize(count);
  out.ilabel.resize(count);
  for (size_t k = 0; k < count; ++k) {
    out.src[k] = node[src[arcs[k]]];
    out.dst[k] = node[dst[arcs[k]]];
    out.ilabel[k] = ilabel[arcs[k]];
  }
  if (!t.is_acceptor()) {
    out.olabel.resize(count);
    for (size_t k = 0; k < count; ++k) out.olabel[k] = olabel[arcs[k]];
  }
  return record_moves(op, std::move(out), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
