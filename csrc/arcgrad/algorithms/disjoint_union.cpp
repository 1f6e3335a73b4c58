#include "arcgrad/algorithms/disjoint_union.h"

#include <algorithm>

#include "arcgrad/runtime/interrupt_poll.h"

// Each graph of the result is a shifted copy, so its arc map is an offset.

namespace arcgrad {

DisjointUnion::DisjointUnion(const char* op, std::vector<Graph> graphs, int32_t first_node,
                             std::span<const int64_t> num_epsilon)
    : op_(op), graphs_(std::move(graphs)) {
  int64_t num_nodes = first_node, num_arcs = 0, all_epsilon = 0;
  for (const Graph& graph : graphs_) {
    num_nodes += graph.num_nodes();
    num_arcs += graph.num_arcs();
  }
  for (int64_t num : num_epsilon) all_epsilon += num;
  require_size(op, "nodes", num_nodes);
  require_size(op, "arcs", num_arcs + all_epsilon);
  arrays.num_nodes = static_cast<int32_t>(num_nodes);
  summands_.reserve(graphs_.size());
  InterruptPoll poll;
  for (size_t i = 0; i < graphs_.size(); ++i) {
    poll();
    summands_.push_back({graphs_[i].topology_ptr(), first_node, num_arcs_});
    first_node += graphs_[i].num_nodes();
    num_arcs_ += graphs_[i].num_arcs();
    if (i < num_epsilon.size()) num_arcs_ += static_cast<int32_t>(num_epsilon[i]);
  }
  epsilon_src_.reserve(static_cast<size_t>(all_epsilon));
  epsilon_dst_.reserve(static_cast<size_t>(all_epsilon));
}

void DisjointUnion::add_epsilon(int32_t src, int32_t dst) {
  epsilon_src_.push_back(src);
  epsilon_dst_.push_back(dst);
}

void DisjointUnion::make_arcs() {
  const bool is_acceptor =
      std::ranges::all_of(summands_, [](const Summand& p) { return p.topology->is_acceptor(); });
  const auto count = static_cast<size_t>(num_arcs_);
  for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel}) column->resize(count);
  if (!is_acceptor) arrays.olabel.resize(count);
  size_t epsilon = 0;
  InterruptPoll poll;
  for (size_t i = 0; i < summands_.size(); ++i) {
    const auto& [topology, first_node, first_arc] = summands_[i];
    poll(1 + topology->num_arcs());
    const auto copy = [begin = first_arc](std::span<const int32_t> from, Column& to,
                                          int32_t shift) {
      std::ranges::transform(from, to.begin() + begin, [=](int32_t v) { return v + shift; });
    };
    copy(topology->src(), arrays.src, first_node);
    copy(topology->dst(), arrays.dst, first_node);
    copy(topology->ilabel(), arrays.ilabel, 0);
    if (!is_acceptor) copy(topology->olabel(), arrays.olabel, 0);
    const int32_t end = i + 1 < summands_.size() ? summands_[i + 1].first_arc : num_arcs_;
    for (int32_t k = first_arc + topology->num_arcs(); k < end; ++k, ++epsilon) {
      arrays.src[k] = epsilon_src_[epsilon];
      arrays.dst[k] = epsilon_dst_[epsilon];
      arrays.ilabel[k] = kEpsilon;
      if (!is_acceptor) arrays.olabel[k] = kEpsilon;
    }
  }
}

Graph DisjointUnion::record() && {
  make_arcs();
  std::vector<Moved> inputs;
  inputs.reserve(graphs_.size());
  for (size_t i = 0; i < graphs_.size(); ++i)
    inputs.push_back({graphs_[i], ArcMap::identity(summands_[i].first_arc)});
  return record_moves(op_, std::move(arrays), std::move(inputs));
}

}  // namespace arcgrad
