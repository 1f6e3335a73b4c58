#include "arcgrad/algorithms/renumber.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

Arrays renumber(const Topology& from, std::span<const int32_t> node, int32_t num_nodes,
                Column& arcs, const std::function<bool(int32_t)>& keeps_weight) {
  Arrays out;
  out.num_nodes = num_nodes;
  out.symbols = from.symbols();
  out.has_node_weights = from.has_node_weights();
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
  const auto rename = [&](std::span<const int32_t> nodes, int32_t weight, Column& to) {
    std::vector<std::pair<int32_t, int32_t>> kept;  // new id, weight
    for (int32_t n : nodes) {
      const bool is_kept = !keeps_weight || !from.has_node_weights() || keeps_weight(weight);
      if (node[n] >= 0 && is_kept) kept.emplace_back(node[n], weight);
      ++weight;
    }
    std::ranges::sort(kept);
    for (const auto& [id, index] : kept) {
      to.push_back(id);
      if (from.has_node_weights()) arcs.push_back(index);
    }
  };
  rename(from.start(), from.first_start_weight(), out.start);
  rename(from.accept(), from.first_accept_weight(), out.accept);
  return out;
}

Column with_node_weights(Column arcs, const Topology& topology) {
  for (int32_t k = topology.num_arcs(); k < topology.num_weights(); ++k) arcs.push_back(k);
  return arcs;
}

}  // namespace arcgrad
