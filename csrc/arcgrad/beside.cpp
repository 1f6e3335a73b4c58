#include "arcgrad/beside.h"

#include <algorithm>

namespace arcgrad {

Beside::Beside(const char* op, std::vector<Graph> graphs, int32_t first_node, size_t num_epsilon)
    : op_(op), graphs_(std::move(graphs)) {
  int64_t num_nodes = first_node, num_arcs = 0;
  for (const Graph& graph : graphs_) {
    num_nodes += graph.num_nodes();
    num_arcs += graph.num_arcs();
  }
  require_size(op, "nodes", num_nodes);
  require_size(op, "arcs", num_arcs + static_cast<int64_t>(num_epsilon));
  const bool is_acceptor =
      std::ranges::all_of(graphs_, [](const Graph& g) { return g.topology().is_acceptor(); });
  const auto count = static_cast<size_t>(num_arcs);
  for (auto* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &arrays.olabel}) {
    if (is_acceptor && column == &arrays.olabel) break;
    column->reserve(count + num_epsilon);
    column->resize(count);
  }
  int32_t node = first_node, arc = 0;
  for (const Graph& graph : graphs_) {
    const Topology& t = graph.topology();
    node_offset_.push_back(node);
    arc_offset_.push_back(arc);
    auto shift = [node](int32_t n) { return n + node; };
    std::ranges::transform(t.src(), arrays.src.begin() + arc, shift);
    std::ranges::transform(t.dst(), arrays.dst.begin() + arc, shift);
    std::ranges::copy(t.ilabel(), arrays.ilabel.begin() + arc);
    if (!is_acceptor) std::ranges::copy(t.olabel(), arrays.olabel.begin() + arc);
    node += t.num_nodes();
    arc += t.num_arcs();
  }
  arrays.num_nodes = node;
}

void Beside::add_epsilon(int32_t src, int32_t dst) {
  arrays.src.push_back(src);
  arrays.dst.push_back(dst);
  arrays.ilabel.push_back(kEpsilon);
  if (!arrays.olabel.empty()) arrays.olabel.push_back(kEpsilon);
}

Graph Beside::record() && {
  std::vector<Moved> inputs;
  for (size_t i = 0; i < graphs_.size(); ++i)
    inputs.push_back({graphs_[i], ArcMap::identity(arc_offset_[i])});
  return record_moves(op_, std::move(arrays), std::move(inputs));
}

}  // namespace arcgrad
