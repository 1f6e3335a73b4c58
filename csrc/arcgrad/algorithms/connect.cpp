#include "arcgrad/algorithms/connect.h"

#include <algorithm>

#include "arcgrad/algorithms/renumber.h"

namespace arcgrad {
namespace {

/// Marks with 1 what starts reach, and with 2 what reaches an accept node, if arcs go forward and
/// come in the order of the nodes they leave: then one pass each way is enough.
bool mark_in_order(const Topology& t, Buffer<uint8_t>& marks) {
  const auto src = t.src(), dst = t.dst();
  if (!t.is_acyclic() || !t.order().nodes.empty() || !std::ranges::is_sorted(src)) return false;
  for (int32_t n : t.start()) marks[n] |= 1;
  for (int32_t n : t.accept()) marks[n] |= 2;
  for (size_t a = 0; a < src.size(); ++a) marks[dst[a]] |= marks[src[a]] & 1;
  for (size_t a = src.size(); a-- > 0;) marks[src[a]] |= marks[dst[a]] & 2;
  return true;
}

/// Marks with `bit` what can be reached from `sources`.
void mark(const Adjacency& along, std::span<const int32_t> sources, uint8_t bit,
          Buffer<uint8_t>& marks) {
  Column stack(sources.begin(), sources.end());
  for (int32_t n : sources) marks[n] |= bit;
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    for (int32_t k = along.offset[n]; k < along.offset[n + 1]; ++k)
      if (!(marks[along.node[k]] & bit)) {
        marks[along.node[k]] |= bit;
        stack.push_back(along.node[k]);
      }
  }
}

/// Whether nodes ascend without gaps, as sources do in most graphs.
bool have_no_gaps(std::span<const int32_t> nodes) {
  constexpr size_t kBlock = 1024;
  for (size_t a = 1; a < nodes.size();) {
    uint32_t steps = 0;  // all of a block in one, so that the loop is vectorised
    for (const size_t last = std::min(a + kBlock, nodes.size()); a < last; ++a)
      steps |= static_cast<uint32_t>(nodes[a] - nodes[a - 1]);
    if (steps > 1) return false;
  }
  return !nodes.empty();
}

/// Whether all nodes but some of `others` are at an `end` of an arc.
bool have_arcs_except(int32_t num_nodes, std::span<const int32_t> end,
                      std::span<const int32_t> others) {
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
  // Following arcs backwards ends at a node without any, which has to be a start; and so forwards.
  return !have_arcs_except(t.num_nodes(), t.dst(), t.start()) ||
         !have_arcs_except(t.num_nodes(), t.src(), t.accept());
}

Connected trim(const Topology& t) {
  if (t.is_acyclic() && !has_dead_ends(t)) return {};
  Buffer<uint8_t> marks(static_cast<size_t>(t.num_nodes()), 0);
  if (!mark_in_order(t, marks)) {
    mark(t.out(), t.start(), 1, marks);
    mark(t.in(), t.accept(), 2, marks);
  }
  Column node(marks.size(), -1);
  int32_t num_nodes = 0;
  for (size_t n = 0; n < marks.size(); ++n)
    if (marks[n] == 3) node[n] = num_nodes++;
  if (num_nodes == t.num_nodes()) return {};
  const auto src = t.src(), dst = t.dst();
  Column arcs(src.size());
  size_t num_arcs = 0;
  for (size_t a = 0; a < src.size(); ++a) {
    arcs[num_arcs] = static_cast<int32_t>(a);
    num_arcs += (node[src[a]] | node[dst[a]]) >= 0 ? 1 : 0;
  }
  arcs.resize(num_arcs);
  auto topology = std::make_shared<const Topology>(renumber(t, node, num_nodes, arcs));
  return {std::move(topology), std::move(arcs)};
}

}  // namespace

bool has_dead_ends(const Topology& topology) {
  return topology.memo<bool>(Memo::has_dead_ends, [&] { return find_dead_ends(topology); });
}

const Connected& connected(const Topology& topology) {
  return topology.memo<Connected>(Memo::connected, [&] { return trim(topology); });
}

}  // namespace arcgrad
