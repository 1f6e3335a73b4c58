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
  auto copy = [&](std::span<const int32_t> from, Column& to) {
    to.resize(arcs.size());
    for (size_t k = 0; k < arcs.size(); ++k) to[k] = from[arcs[k]];
  };
  copy(in.ilabel(), out.ilabel);
  if (!in.is_acceptor()) copy(in.olabel(), out.olabel);
  return record_moves(op, std::move(out), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
