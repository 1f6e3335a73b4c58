#include "arcgrad/algorithms/renumber.h"

#include <algorithm>

#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

Arrays renumber(const Topology& from, std::span<const int32_t> node, int32_t num_nodes,
                std::span<const int32_t> arcs) {
  Arrays out;
  out.num_nodes = num_nodes;
  out.symbols = from.symbols();
  const auto rename = [&](std::span<const int32_t> nodes, Column& to) {
    for (int32_t n : nodes)
      if (node[n] >= 0) to.push_back(node[n]);
    std::sort(to.begin(), to.end());
  };
  rename(from.start(), out.start);
  rename(from.accept(), out.accept);
  const auto src = from.src(), dst = from.dst(), ilabel = from.ilabel(), olabel = from.olabel();
  for (Column* column : {&out.src, &out.dst, &out.ilabel}) column->resize(arcs.size());
  InterruptPoll poll;
  for (size_t k = 0; k < arcs.size(); ++k) {
    poll();
    out.src[k] = node[src[arcs[k]]];
    out.dst[k] = node[dst[arcs[k]]];
    out.ilabel[k] = ilabel[arcs[k]];
  }
  if (!from.is_acceptor()) {
    out.olabel.resize(arcs.size());
    for (size_t k = 0; k < arcs.size(); ++k) out.olabel[k] = olabel[arcs[k]];
  }
  return out;
}

}  // namespace arcgrad
