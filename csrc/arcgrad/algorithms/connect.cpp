#include "arcgrad/algorithms/connect.h"

#include <algorithm>

#include "arcgrad/algorithms/renumber.h"

namespace arcgrad {
namespace {

// Marks of a node: a start node reaches it, and it reaches an accept node.
constexpr uint8_t kReached = 1, kReaching = 2;

/// Marks the nodes of a topology whose arcs are stored by source node and lead to later nodes: one
/// pass over the arcs in each direction is enough. Returns false for any other topology.
bool mark_in_order(const Topology& t, Buffer<uint8_t>& marks) {
  const auto src = t.src(), dst = t.dst();
  if (!t.is_acyclic() || !t.order().nodes.empty() || !std::ranges::is_sorted(src)) return false;
  for (int32_t n : t.start()) marks[n] |= kReached;
  for (int32_t n : t.accept()) marks[n] |= kReaching;
  for (size_t a = 0; a < src.size(); ++a) marks[dst[a]] |= marks[src[a]] & kReached;
  for (size_t a = src.size(); a-- > 0;) marks[src[a]] |= marks[dst[a]] & kReaching;
  return true;
}

/// Whether ids ascend without gaps, as the source nodes of most graphs do.
bool have_no_gaps(std::span<const int32_t> nodes) {
  constexpr size_t kBlock = 1024;
  for (size_t a = 1; a < nodes.size();) {
    uint32_t steps = 0;  // combined without branches, so that the loop is vectorized
    for (const size_t last = std::min(a + kBlock, nodes.size()); a < last; ++a)
      steps |= static_cast<uint32_t>(nodes[a] - nodes[a - 1]);
    if (steps > 1) return false;
  }
  return !nodes.empty();
}

/// Whether every node is in `end`, the source or destination nodes of all arcs, or in `others`.
bool cover_nodes(int32_t num_nodes, std::span<const int32_t> end, std::span<const int32_t> others) {
  if (have_no_gaps(end)) {
    const int32_t first = end.front(), last = end.back();
    return std::ranges::count_if(others, [&](int32_t n) { return n < first || n > last; }) ==
           num_nodes - (last - first + 1);
  }
  Buffer<uint8_t> has_arc(static_cast<size_t>(num_nodes), 0);
  for (int32_t n : end) has_arc[n] = 1;
  for (int32_t n : others) has_arc[n] = 1;
  return std::ranges::find(has_arc, 0) == has_arc.end();
}

bool find_dead_ends(const Topology& t) {
  // Without cycles, any path against the arcs ends at a node that no arc enters. So all nodes are
  // reached from start nodes if all nodes that no arc enters are start nodes; likewise forwards.
  return !cover_nodes(t.num_nodes(), t.dst(), t.start()) ||
         !cover_nodes(t.num_nodes(), t.src(), t.accept());
}

Connected trim(const Topology& t) {
  if (t.is_acyclic() && !has_dead_ends(t)) return {};
  Buffer<uint8_t> marks(static_cast<size_t>(t.num_nodes()), 0);
  if (!mark_in_order(t, marks)) {
    const auto all = [](int32_t) { return true; };
    mark_reachable(t.out(), t.start(), all, kReached, marks);
    mark_reachable(t.in(), t.accept(), all, kReaching, marks);
  }
  Column node(marks.size(), -1);
  int32_t num_nodes = 0;
  for (size_t n = 0; n < marks.size(); ++n)
    if (marks[n] == (kReached | kReaching)) node[n] = num_nodes++;
  if (num_nodes == t.num_nodes()) return {};
  const auto src = t.src(), dst = t.dst();
  Column arcs(src.size());
  size_t num_arcs = 0;
  for (size_t a = 0; a < src.size(); ++a) {
    arcs[num_arcs] = static_cast<int32_t>(a);
    num_arcs += (node[src[a]] | node[dst[a]]) >= 0 ? 1 : 0;
  }
  arcs.resize(num_arcs);
  Arrays arrays = renumber(t, node, num_nodes, arcs);
  return {std::make_shared<const Topology>(std::move(arrays)), std::move(arcs)};
}

}  // namespace

bool has_dead_ends(const Topology& topology) {
  return topology.memo<bool>(Memo::has_dead_ends, [&] { return find_dead_ends(topology); });
}

const Connected& connected(const Topology& topology) {
  return topology.memo<Connected>(Memo::connected, [&] { return trim(topology); });
}

}  // namespace arcgrad
