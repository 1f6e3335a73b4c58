#include "arcgrad/paths.h"

#include <numeric>

namespace arcgrad {

Arrays path_arrays(const Topology& topology, std::span<const int32_t> arcs) {
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
  copy(topology.ilabel(), out.ilabel);
  if (!topology.is_acceptor()) copy(topology.olabel(), out.olabel);
  return out;
}

Graph record_path(const char* op, const Graph& graph, std::vector<int32_t> arcs) {
  Arrays chain = path_arrays(graph.topology(), arcs);
  return record_moves(op, std::move(chain), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
