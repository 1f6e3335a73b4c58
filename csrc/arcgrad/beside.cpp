#include "arcgrad/beside.h"

#include <algorithm>

#include "arcgrad/stream.h"

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
    auto copy = [arc](std::span<const int32_t> from, Column& to, int32_t shift) {
      write_blocks(std::span(to).subspan(static_cast<size_t>(arc), from.size()),
                   [&](size_t begin, std::span<int32_t> block) {
                     for (size_t k = 0; k < block.size(); ++k) block[k] = from[begin + k] + shift;
                   });
    };
    copy(t.src(), arrays.src, node);
    copy(t.dst(), arrays.dst, node);
    copy(t.ilabel(), arrays.ilabel, 0);
    if (!is_acceptor) copy(t.olabel(), arrays.olabel, 0);
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
