#include "arcgrad/paths.h"

#include <numeric>

namespace arcgrad {

Graph record_path(const char* op, const Graph& graph, std::vector<int32_t> arcs) {
  const Topology& in = graph.topology();
  const auto length = static_cast<int32_t>(arcs.size());
  Arrays out{length + 1, {0}, {length}, {}, {}, {}, {}};
  out.src.resize(arcs.size());
  out.dst.resize(arcs.size());
  std::iota(out.src.begin(), out.src.end(), 0);
  std::iota(out.dst.begin(), out.dst.end(), 1);
  const auto ilabel = in.ilabel(), olabel = in.olabel();
  for (int32_t a : arcs) out.ilabel.push_back(ilabel[a]);
  if (!in.is_acceptor())
    for (int32_t a : arcs) out.olabel.push_back(olabel[a]);
  return record_moves(op, std::move(out), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
