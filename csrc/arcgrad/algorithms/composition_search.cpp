#include "arcgrad/algorithms/composition_search.h"

#include <limits>
#include <utility>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/memory_limit.h"

namespace arcgrad {
namespace {

std::vector<bool> accept_flags(const Topology& topology) {
  std::vector<bool> flags(static_cast<size_t>(topology.num_nodes()));
  for (const int32_t n : topology.accept()) flags[n] = true;
  return flags;
}

// The nodes with a path to an accept node. connect() follows incoming arcs instead, whose index
// would take a counting sort of all arcs; these passes read the outgoing arcs as they are stored.

/// Keeps each node with an arc to a kept node, in one pass over the nodes, the last one first.
/// Returns whether any node was added.
bool mark_in_one_pass(const CompositionSearch& search, std::vector<bool>& kept) {
  bool changed = false;
  InterruptPoll poll;
  for (int32_t n = search.num_nodes(); n-- > 0;) {
    poll();
    if (kept[n]) continue;
    for (int32_t k = search.begin(n); k < search.begin(n + 1); ++k)
      if (kept[search.dst(k)]) {
        kept[n] = changed = true;
        break;
      }
  }
  return changed;
}

/// Keeps all nodes with a path to a kept node, visiting each arc once. A node without an arc to a
/// kept node is put into a list at each of its destinations; when a destination is kept, so is its
/// list.
void mark_by_lists(const CompositionSearch& search, std::vector<bool>& kept) {
  struct Waiting {
    int32_t node, next;
  };
  PodVector<Waiting> waiting;
  Column head(kept.size(), -1), stack;
  InterruptPoll poll;
  for (int32_t n = search.num_nodes(); n-- > 0;) {
    poll(search.begin(n + 1) - search.begin(n));
    for (int32_t k = search.begin(n); !kept[n] && k < search.begin(n + 1); ++k) {
      const int32_t dst = search.dst(k);
      if (!kept[dst]) {
        waiting.push_back({n, std::exchange(head[dst], static_cast<int32_t>(waiting.size()))});
        continue;
      }
      kept[n] = true;
      stack.push_back(n);
    }
    while (!stack.empty()) {
      int32_t w = head[stack.back()];
      stack.pop_back();
      for (; w >= 0; w = waiting[w].next, poll())
        if (!kept[waiting[w].node]) {
          kept[waiting[w].node] = true;
          stack.push_back(waiting[w].node);
        }
    }
  }
}

std::vector<bool> find_coaccessible(const CompositionSearch& search) {
  std::vector<bool> kept(static_cast<size_t>(search.num_nodes()));
  for (int32_t n = 0; n < search.num_nodes(); ++n) kept[n] = search.is_accept(n);
  // After a breadth-first search most arcs lead to later nodes, so a few passes leave little to the
  // lists, which read memory at random.
  constexpr int kPasses = 4;
  for (int i = 0; i < kPasses; ++i)
    if (!mark_in_one_pass(search, kept)) return kept;
  mark_by_lists(search, kept);
  return kept;
}

/// About what an arc of the search takes, with its share of the nodes, and a copy in the result.
constexpr int64_t kBytesPerArc = 64;

}  // namespace

SearchLimit::SearchLimit(std::string_view op, const Topology& first, const Topology& second,
                         std::optional<int64_t> max_arcs)
    : op_(op),
      first_(first),
      second_(second),
      is_default_(!max_arcs),
      max_arcs_(std::min<int64_t>(max_arcs.value_or(machine_memory() / 2 / kBytesPerArc),
                                  std::numeric_limits<int32_t>::max())) {}

void SearchLimit::fail_size(int64_t num_nodes, int64_t num_arcs) const {
  const auto describe = [](const Topology& t) {
    return text(t.num_nodes(), " nodes and ", t.num_arcs(), " arcs");
  };
  fail(op_, "the search for the common paths may reach at most ", max_arcs_, " arcs",
       is_default_ ? ", which fit into half of the memory" : " (max_arcs)",
       ", but that of a graph of ", describe(first_), " with one of ", describe(second_),
       " reached ", num_arcs, " arcs and ", num_nodes,
       " nodes; compose with a part of one graph first, let labels come before epsilon arcs, "
       "or raise max_arcs");
}

CompositionSearch::CompositionSearch(std::string_view op, const Topology& first,
                                     const Topology& second, uint64_t num_filters,
                                     std::optional<int64_t> max_arcs)
    : ids_(op, first.num_nodes(), second.num_nodes(), num_filters),
      limit_(op, first, second, max_arcs),
      first_accepts_(accept_flags(first)),
      second_accepts_(accept_flags(second)) {
  InterruptPoll poll;
  for (const int32_t n1 : first.start()) {
    for (const int32_t n2 : second.start()) ids_[ids_.key({n1, n2})];
    poll(std::ssize(second.start()));
    check_size();
  }
  num_start_ = num_nodes();
  offset_.push_back(0);
  targets_.reserve(64);
}

AcceptedPaths find_accepted_paths(const CompositionSearch& search) {
  const std::vector<bool> kept = find_coaccessible(search);
  AcceptedPaths out;
  Arrays& arrays = out.arrays;
  Column id(kept.size(), -1);
  InterruptPoll poll;
  for (int32_t n = 0; n < search.num_nodes(); ++n) {
    poll();
    if (!kept[n]) continue;
    id[n] = arrays.num_nodes++;
    out.nodes.push_back(n);
    if (n < search.num_start()) arrays.start.push_back(id[n]);
    if (search.is_accept(n)) arrays.accept.push_back(id[n]);
  }
  // Where nearly all nodes are kept, so are nearly all arcs, and they need no count.
  const bool is_counted = arrays.num_nodes < search.num_nodes() - search.num_nodes() / 8;
  size_t most = 1;
  for (const int32_t n : out.nodes) {
    const int32_t begin = search.begin(n), end = search.begin(n + 1);
    poll(is_counted ? end - begin : 1);
    if (!is_counted) most += static_cast<size_t>(end - begin);
    for (int32_t k = begin; is_counted && k < end; ++k) most += kept[search.dst(k)];
  }
  const auto columns = {&arrays.src, &arrays.dst, &out.first, &out.second};
  for (auto* column : columns) column->resize(most);
  size_t a = 0;
  for (const int32_t n : out.nodes) {
    const int32_t begin = search.begin(n), end = search.begin(n + 1), src = id[n];
    poll(end - begin);
    // The next arc overwrites one to a node that is not kept: no branch to mispredict.
    for (int32_t k = begin; k < end; ++k) {
      const auto [first, second] = search.parents(k);
      const int32_t dst = id[search.dst(k)];
      arrays.src[a] = src;
      arrays.dst[a] = dst;
      out.first[a] = first;
      out.second[a] = second;
      a += dst >= 0;
    }
  }
  for (auto* column : columns) column->resize(a);
  return out;
}

}  // namespace arcgrad
