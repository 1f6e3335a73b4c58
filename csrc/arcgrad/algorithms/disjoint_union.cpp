#include "arcgrad/algorithms/disjoint_union.h"

#include <algorithm>
#include <numeric>

#include "arcgrad/runtime/interrupt_poll.h"

// Each graph of the result is a shifted copy, so its arc map is an offset. With node weights, the
// weights of all graphs are first put side by side, by offsets too, and then gathered from there.

namespace arcgrad {

DisjointUnion::DisjointUnion(const char* op, std::vector<Graph> graphs, int32_t first_node,
                             std::span<const int64_t> num_epsilon)
    : op_(op), graphs_(std::move(graphs)) {
  int64_t num_nodes = first_node, num_arcs = 0, num_weights = 0, all_epsilon = 0;
  for (const Graph& graph : graphs_) {
    num_nodes += graph.num_nodes();
    num_arcs += graph.num_arcs();
    num_weights += graph.num_weights();
  }
  for (int64_t num : num_epsilon) all_epsilon += num;
  require_size(op, "nodes", num_nodes);
  require_size(op, "arcs", num_arcs + all_epsilon);
  require_size(op, "weights", num_weights + all_epsilon);
  arrays.num_nodes = static_cast<int32_t>(num_nodes);
  summands_.reserve(graphs_.size());
  InterruptPoll poll;
  int32_t first_weight = 0;
  for (size_t i = 0; i < graphs_.size(); ++i) {
    poll();
    summands_.push_back({graphs_[i].topology_ptr(), first_node, num_arcs_, first_weight});
    first_weight += graphs_[i].num_weights();
    first_node += graphs_[i].num_nodes();
    num_arcs_ += graphs_[i].num_arcs();
    if (i < num_epsilon.size()) num_arcs_ += static_cast<int32_t>(num_epsilon[i]);
  }
  epsilon_src_.reserve(static_cast<size_t>(all_epsilon));
  epsilon_dst_.reserve(static_cast<size_t>(all_epsilon));
}

void DisjointUnion::add_starts(size_t i) {
  const auto& [topology, first_node, first_arc, first_weight] = summands_[i];
  if (topology->has_node_weights()) {
    start_weights_.resize(arrays.start.size(), -1);
    for (int32_t n : topology->start())
      start_weights_.push_back(first_weight + topology->start_weight(n));
  }
  for (int32_t n : topology->start()) arrays.start.push_back(first_node + n);
}

void DisjointUnion::add_accepts(size_t i) {
  const auto& [topology, first_node, first_arc, first_weight] = summands_[i];
  if (topology->has_node_weights()) {
    accept_weights_.resize(arrays.accept.size(), -1);
    for (int32_t n : topology->accept())
      accept_weights_.push_back(first_weight + topology->accept_weight(n));
  }
  for (int32_t n : topology->accept()) arrays.accept.push_back(first_node + n);
}

void DisjointUnion::add_epsilon(JoinedNode accept, JoinedNode start) {
  const auto add = [&](const JoinedNode& end, auto weight, Column& nodes, Column& weights) {
    nodes.push_back(end.graph ? node(*end.graph, end.node) : end.node);
    const int32_t index = end.graph ? weight(*summands_[*end.graph].topology) : -1;
    weights.push_back(index < 0 ? -1 : summands_[*end.graph].first_weight + index);
  };
  add(
      accept, [&](const Topology& t) { return t.accept_weight(accept.node); }, epsilon_src_,
      epsilon_accept_);
  add(
      start, [&](const Topology& t) { return t.start_weight(start.node); }, epsilon_dst_,
      epsilon_start_);
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
    const auto& [topology, first_node, first_arc, first_weight] = summands_[i];
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

bool DisjointUnion::has_node_weights() const {
  return std::ranges::any_of(summands_,
                             [](const Summand& p) { return p.topology->has_node_weights(); });
}

Graph DisjointUnion::record_node_weights() {
  std::vector<Moved> inputs;
  for (size_t i = 0; i < graphs_.size(); ++i)
    inputs.push_back({graphs_[i], ArcMap::identity(summands_[i].first_weight)});
  int32_t num_weights = 0;
  for (const Graph& graph : graphs_) num_weights += graph.num_weights();
  const Graph all = record_moves(op_, std::make_shared<Topology>(1, num_weights), inputs);

  start_weights_.resize(arrays.start.size(), -1);
  accept_weights_.resize(arrays.accept.size(), -1);
  const auto has_weight = [](const Column& weights) {
    return std::ranges::any_of(weights, [](int32_t w) { return w >= 0; });
  };
  arrays.has_node_weights = has_weight(start_weights_) || has_weight(accept_weights_);
  // The weights of epsilon arcs are sums of two.
  Column first(static_cast<size_t>(num_arcs_)), second(first.size(), -1);
  size_t epsilon = 0;
  InterruptPoll poll;
  for (size_t i = 0; i < summands_.size(); ++i) {
    const auto& [topology, first_node, first_arc, first_weight] = summands_[i];
    poll(1 + topology->num_arcs());
    const int32_t middle = first_arc + topology->num_arcs();
    const int32_t end = i + 1 < summands_.size() ? summands_[i + 1].first_arc : num_arcs_;
    std::iota(first.begin() + first_arc, first.begin() + middle, first_weight);
    for (int32_t k = middle; k < end; ++k, ++epsilon) {
      first[k] = epsilon_accept_[epsilon];
      second[k] = epsilon_start_[epsilon];
    }
  }
  if (arrays.has_node_weights)
    for (const Column* weights : {&start_weights_, &accept_weights_})
      first.insert(first.end(), weights->begin(), weights->end());
  inputs = {{all, ArcMap::gather(std::move(first))}};
  if (has_weight(epsilon_start_)) inputs.push_back({all, ArcMap::gather(std::move(second))});
  return record_moves(op_, std::move(arrays), std::move(inputs));
}

Graph DisjointUnion::record() && {
  make_arcs();
  if (has_node_weights()) return record_node_weights();
  std::vector<Moved> inputs;
  inputs.reserve(graphs_.size());
  for (size_t i = 0; i < graphs_.size(); ++i)
    inputs.push_back({graphs_[i], ArcMap::identity(summands_[i].first_arc)});
  return record_moves(op_, std::move(arrays), std::move(inputs));
}

}  // namespace arcgrad
