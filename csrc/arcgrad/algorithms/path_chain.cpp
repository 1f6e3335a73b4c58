#include "arcgrad/algorithms/path_chain.h"

#include <numeric>
#include <utility>

namespace arcgrad {

Arrays chain_arrays(Column labels) {
  const auto length = static_cast<int32_t>(labels.size());
  Arrays out{length + 1, {0}, {length}, {}, {}, std::move(labels), {}};
  out.src.resize(out.ilabel.size());
  out.dst.resize(out.ilabel.size());
  std::iota(out.src.begin(), out.src.end(), 0);
  std::iota(out.dst.begin(), out.dst.end(), 1);
  return out;
}

Arrays path_arrays(const Topology& topology, std::span<const int32_t> arcs) {
  const auto labels = [&](std::span<const int32_t> from) {
    Column out(arcs.size());
    for (size_t k = 0; k < arcs.size(); ++k) out[k] = from[arcs[k]];
    return out;
  };
  Arrays out = chain_arrays(labels(topology.ilabel()));
  if (!topology.is_acceptor()) out.olabel = labels(topology.olabel());
  return out;
}

Graph record_path(const char* op, const Graph& graph, Column arcs) {
  Arrays chain = path_arrays(graph.topology(), arcs);
  return record_moves(op, std::move(chain), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
