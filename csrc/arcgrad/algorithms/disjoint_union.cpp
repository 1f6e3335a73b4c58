#include "arcgrad/algorithms/disjoint_union.h"

#include <algorithm>
#include <mutex>

namespace arcgrad {
namespace {

bool is_acceptor(const Parts& parts) {
  return std::ranges::all_of(parts.parts, [](const auto& p) { return p.topology->is_acceptor(); });
}

int32_t depth_of(const Parts& parts) {
  int32_t depth = 0;
  for (const auto& part : parts.parts) depth = std::max(depth, part.topology->depth());
  return depth + 1;
}

void copy_parts(const Parts& parts, Arrays& to, size_t first_arc, int32_t node_shift) {
  size_t epsilon = 0;
  for (size_t i = 0; i < parts.parts.size(); ++i) {
    const auto& [topology, first_node, begin] = parts.parts[i];
    topology->copy_arcs(to, first_arc + static_cast<size_t>(begin), node_shift + first_node);
    const int32_t end = i + 1 < parts.parts.size() ? parts.parts[i + 1].first_arc : parts.num_arcs;
    for (int32_t k = begin + topology->num_arcs(); k < end; ++k, ++epsilon) {
      const size_t arc = first_arc + static_cast<size_t>(k);
      to.src[arc] = parts.epsilon_src[epsilon] + node_shift;
      to.dst[arc] = parts.epsilon_dst[epsilon] + node_shift;
      to.ilabel[arc] = kEpsilon;
      if (!to.olabel.empty()) to.olabel[arc] = kEpsilon;
    }
  }
}

void make_arcs(const Parts& parts, Arrays& arrays) {
  const auto count = static_cast<size_t>(parts.num_arcs);
  for (auto* column : {&arrays.src, &arrays.dst, &arrays.ilabel}) column->resize(count);
  if (!is_acceptor(parts)) arrays.olabel.resize(count);
  copy_parts(parts, arrays, 0, 0);
}

/// Such arcs before somebody looks; then the parts are let go.
class PartsRule final : public ArcRule {
 public:
  explicit PartsRule(Parts parts)
      : parts_(std::make_shared<const Parts>(std::move(parts))),
        num_arcs_(parts_->num_arcs),
        depth_(depth_of(*parts_)),
        is_acceptor_(arcgrad::is_acceptor(*parts_)) {}

  int32_t num_arcs() const override { return num_arcs_; }
  bool is_acceptor() const override { return is_acceptor_; }
  void make(Arrays& arrays) const override {
    // Without parts they are made, and this is a process that was forked just then.
    if (const auto parts = get()) make_arcs(*parts, arrays);
    std::shared_ptr<const Parts> old;
    std::lock_guard lock(mutex_);
    old.swap(parts_);
  }
  bool copy_arcs(Arrays& to, size_t first_arc, int32_t node_shift) const override {
    const auto parts = get();
    if (parts) copy_parts(*parts, to, first_arc, node_shift);
    return parts != nullptr;
  }
  int32_t depth() const override { return get() ? depth_ : 0; }

 private:
  std::shared_ptr<const Parts> get() const {
    std::lock_guard lock(mutex_);
    return parts_;
  }

  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Parts> parts_;
  int32_t num_arcs_, depth_;
  bool is_acceptor_;
};

}  // namespace

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
  parts_.parts.reserve(graphs_.size());
  for (size_t i = 0; i < graphs_.size(); ++i) {
    parts_.parts.push_back({graphs_[i].topology_ptr(), first_node, parts_.num_arcs});
    first_node += graphs_[i].num_nodes();
    parts_.num_arcs += graphs_[i].num_arcs();
    if (i < num_epsilon.size()) parts_.num_arcs += static_cast<int32_t>(num_epsilon[i]);
  }
  parts_.epsilon_src.reserve(static_cast<size_t>(all_epsilon));
  parts_.epsilon_dst.reserve(static_cast<size_t>(all_epsilon));
}

void DisjointUnion::add_epsilon(int32_t src, int32_t dst) {
  parts_.epsilon_src.push_back(src);
  parts_.epsilon_dst.push_back(dst);
}

Graph DisjointUnion::record() && {
  std::vector<Moved> inputs;
  inputs.reserve(graphs_.size());
  for (size_t i = 0; i < graphs_.size(); ++i)
    inputs.push_back({graphs_[i], ArcMap::identity(parts_.parts[i].first_arc)});
  TopologyPtr topology;
  if (is_for_later(parts_.num_arcs)) {
    if (depth_of(parts_) > kMaxLater)
      for (const auto& part : parts_.parts) part.topology->src();
    topology = std::make_shared<Topology>(std::move(arrays),
                                          std::make_unique<const PartsRule>(std::move(parts_)));
  } else {
    make_arcs(parts_, arrays);
    topology = std::make_shared<Topology>(std::move(arrays));
  }
  return record_moves(op_, std::move(topology), std::move(inputs), When::at_first_look);
}

}  // namespace arcgrad
