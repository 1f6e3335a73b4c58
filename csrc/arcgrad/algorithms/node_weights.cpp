#include "arcgrad/algorithms/node_weights.h"

#include <algorithm>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

TopologyPtr expand(const Topology& t) {
  require_size("expand", "nodes", int64_t{t.num_nodes()} + 2);
  const auto num_arcs = static_cast<size_t>(t.num_arcs());
  const auto num_weights = static_cast<size_t>(t.num_weights());
  const int32_t start = t.num_nodes(), accept = start + 1;
  // The arcs of `t`, then those of start nodes, then those of accept nodes.
  const auto column = [&](std::span<const int32_t> arcs, int32_t at_start, int32_t at_accept) {
    Column out(num_weights);
    const auto ends = std::ranges::copy(arcs, out.begin()).out;
    std::fill(std::fill_n(ends, t.start().size(), at_start), out.end(), at_accept);
    return out;
  };
  Arrays out{accept + 1, {start}, {accept}, {}, {}, {}, {}};
  out.src = column(t.src(), start, -1);
  std::ranges::copy(t.accept(), out.src.end() - std::ssize(t.accept()));
  out.dst = column(t.dst(), -1, accept);
  std::ranges::copy(t.start(), out.dst.begin() + static_cast<ptrdiff_t>(num_arcs));
  out.ilabel = column(t.ilabel(), kEpsilon, kEpsilon);
  if (!t.is_acceptor()) out.olabel = column(t.olabel(), kEpsilon, kEpsilon);
  out.is_expanded = true;
  return std::make_shared<const Topology>(std::move(out));
}

}  // namespace

const TopologyPtr& expanded(const TopologyPtr& topology) {
  if (!topology->has_node_weights()) return topology;
  return topology->memo<TopologyPtr>(Memo::expanded, [&] { return expand(*topology); });
}

const Topology& expanded(const Topology& topology) {
  if (!topology.has_node_weights()) return topology;
  return *topology.memo<TopologyPtr>(Memo::expanded, [&] { return expand(topology); });
}

std::vector<int32_t> possible_ends(std::span<const int32_t> nodes,
                                   const std::vector<double>& weights) {
  std::vector<int32_t> out;
  for (size_t k = 0; k < nodes.size(); ++k)
    if (weights[k] > kNegInf) out.push_back(nodes[k]);
  return out;
}

bool is_node_weight(const Topology& t, int64_t index) {
  if (!t.is_expanded()) return index >= t.num_arcs();
  const auto k = static_cast<size_t>(index);
  return t.src()[k] == t.num_nodes() - 2 || t.dst()[k] == t.num_nodes() - 1;
}

std::string describe_weight(const Topology& t, int64_t index) {
  if (!is_node_weight(t, index)) return text("arc ", index);
  const auto k = static_cast<size_t>(index);
  const auto first_start = static_cast<size_t>(t.first_start_weight());
  const auto first_accept = static_cast<size_t>(t.first_accept_weight());
  const bool is_start = t.is_expanded() ? t.src()[k] == t.num_nodes() - 2 : k < first_accept;
  const int32_t node = t.is_expanded() ? (is_start ? t.dst()[k] : t.src()[k])
                       : is_start      ? t.start()[k - first_start]
                                       : t.accept()[k - first_accept];
  return text(is_start ? "the start" : "the accept", " weight of node ", node);
}

}  // namespace arcgrad
