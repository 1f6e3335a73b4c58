// Arranges a topology as a TrellisGraph: splits its nodes into states, sorts its arcs into rows of
// terms, and finds its shape.
//
// A node that one label enters, and no epsilon arc, is one emitting state. Any other node that
// labels enter has an emitting state per label and a non-emitting state; each of the former leads
// to the latter by a term without an arc, so that the outgoing arcs of the node are stored once.
// The epsilon arcs give the topological order of the non-emitting states (Kahn 1962). Cost:
// O(arcs), and O(n log n) for the n arcs that enter nodes of several labels.

#include "arcgrad/trellis/trellis_graph.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "arcgrad/algorithms/interruptible_memo.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {
namespace {

/// A topological order of the nodes by epsilon arcs; incomplete if they form a cycle.
std::vector<int32_t> epsilon_order(int32_t num_nodes, const std::vector<int32_t>& arcs,
                                   std::span<const int32_t> src, std::span<const int32_t> dst) {
  std::vector<int32_t> offset(static_cast<size_t>(num_nodes) + 1), in_degree(num_nodes), to;
  for (int32_t a : arcs) {
    ++offset[src[a] + 1];
    ++in_degree[dst[a]];
  }
  std::partial_sum(offset.begin(), offset.end(), offset.begin());
  to.resize(arcs.size());
  std::vector<int32_t> next(offset.begin(), offset.end() - 1), order;
  for (int32_t a : arcs) to[next[src[a]]++] = dst[a];
  order.reserve(num_nodes);
  for (int32_t n = 0; n < num_nodes; ++n)
    if (in_degree[n] == 0) order.push_back(n);
  for (size_t head = 0; head < order.size(); ++head)
    for (int32_t k = offset[order[head]]; k < offset[order[head] + 1]; ++k)
      if (--in_degree[to[k]] == 0) order.push_back(to[k]);
  return order;
}

/// Graphs with this many arcs are checked for Ctrl-C while they are arranged.
constexpr int32_t kManyArcs = 1 << 18;

/// Consecutive arcs. If `repeats`, they have one source, no epsilons, and the destinations and
/// labels of the arcs of the segment before.
struct Segment {
  int32_t begin, end;
  bool repeats;
};

/// Divides the arcs into segments. In dense graphs the arcs of a node often repeat those of the
/// node before, and comparing them is faster than processing each. Other graphs are one segment.
std::vector<Segment> divide_arcs(int32_t num_nodes, std::span<const int32_t> src,
                                 std::span<const int32_t> dst, std::span<const int32_t> label) {
  constexpr int32_t kMany = 16;
  const auto count = static_cast<int32_t>(src.size());
  std::vector<Segment> segments;
  if (count == 0) return segments;
  if (count < kMany * int64_t{num_nodes}) return {{0, count, false}};
  for (int32_t a = 0, end, before = 0; a < count; before = end - a, a = end) {
    end = a + 1;
    for (; end + kMany <= count; end += kMany) {
      int32_t other = 0;
      for (int32_t k = 0; k < kMany; ++k) other |= src[end + k] ^ src[a];
      if (other) break;
    }
    while (end < count && src[end] == src[a]) ++end;
    const auto is_same = [&](std::span<const int32_t> of) {
      return std::ranges::equal(of.subspan(a, before), of.subspan(a - before, before));
    };
    const bool repeats =
        end - a == before && is_same(dst) && is_same(label) &&
        std::ranges::find(label.subspan(a, before), kEpsilon) == label.subspan(a, before).end();
    segments.push_back({a, end, repeats});
  }
  return segments;
}

}  // namespace

TrellisGraph::TrellisGraph(const Topology& topology, Side side) {
  build(topology, side);
  if (has_epsilon_cycle) return;
  find_offsets();
  find_density();
  find_spans();
}

void TrellisGraph::build(const Topology& topology, Side side) {
  const auto src = topology.src(), dst = topology.dst(), label = topology.label(side);
  const int32_t num_nodes = topology.num_nodes();
  const int32_t num_arcs = topology.num_arcs();
  // Between passes over the arcs, which take less than 1 s each.
  const auto poll = [is_large = num_arcs >= kManyArcs] {
    if (is_large) poll_interrupt();
  };
  num_weights = topology.num_weights();
  has_node_weights = topology.has_node_weights();
  first_start_weight_ = topology.first_start_weight();
  first_accept_weight_ = topology.first_accept_weight();

  // The only label that enters each node. In most graphs no node is entered by many labels, and
  // then nothing must be sorted.
  constexpr int32_t kNone = -2, kMany = -3;
  std::vector<int32_t> epsilons, only(num_nodes, kNone), num_out(num_nodes);
  const std::vector<Segment> segments = divide_arcs(num_nodes, src, dst, label);
  bool has_many = false, has_epsilon = false;
  // The pointers are constants here and below, so that they stay in registers.
  const auto read = [&, src, dst, label, of_node = only.data(), out = num_out.data()](int32_t begin,
                                                                                      int32_t end) {
    for (int32_t a = begin; a < end; ++a) {
      ++out[src[a]];
      const int32_t l = label[a];
      int32_t& seen = of_node[dst[a]];
      if (seen == l) continue;
      if (l == kEpsilon) {
        has_epsilon = true;
        continue;
      }
      has_many |= seen != kNone;
      seen = seen == kNone ? l : kMany;
    }
  };
  poll();
  for (const auto [begin, end, repeats] : segments) {
    if (repeats)
      num_out[src[begin]] += end - begin;
    else
      read(begin, end);
  }
  for (int32_t a = 0; a < num_arcs && has_epsilon; ++a)
    if (label[a] == kEpsilon) epsilons.push_back(a);
  poll();
  // The emitting states of nodes that many labels enter: (node, label) pairs, sorted.
  std::vector<std::pair<int32_t, int32_t>> entries;
  if (has_many) {
    for (int32_t a = 0; a < num_arcs; ++a)
      if (label[a] != kEpsilon && only[dst[a]] == kMany) entries.emplace_back(dst[a], label[a]);
    interruptible_sort(entries);
    entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  }
  std::vector<int32_t> order;
  if (!epsilons.empty()) {
    order = epsilon_order(num_nodes, epsilons, src, dst);
    if (order.size() < static_cast<size_t>(num_nodes)) {
      has_epsilon_cycle = true;
      return;
    }
  }

  poll();
  // Emitting states, in the order of nodes and labels.
  std::vector<int32_t> first_state(num_nodes, -1), state_label(num_nodes + entries.size());
  node.resize(state_label.size());
  const auto add_state = [&](int32_t n, int32_t l) {
    node[num_emitting] = n;
    state_label[num_emitting] = l;
    ++num_emitting;
  };
  for (int32_t n = 0, w = 0; n < num_nodes; ++n) {
    if (only[n] == kNone) continue;
    first_state[n] = num_emitting;
    if (only[n] != kMany) add_state(n, only[n]);
    for (; w < std::ssize(entries) && entries[w].first == n; ++w) add_state(n, entries[w].second);
  }
  state_label.resize(num_emitting);
  node.resize(num_emitting);
  // value[n] is the state that has the terms of the outgoing arcs of node n: its emitting state if
  // nothing else enters it.
  std::vector<int32_t> value(first_state);
  for (const auto& [n, l] : entries) value[n] = -1;
  for (int32_t a : epsilons) value[dst[a]] = -1;
  for (int32_t k = 0; k < num_nodes; ++k) {
    const int32_t n = order.empty() ? k : order[k];
    if (value[n] >= 0) continue;
    value[n] = static_cast<int32_t>(node.size());
    node.push_back(n);
  }
  num_values = static_cast<int32_t>(node.size());

  auto state_of = [&](int32_t a) {
    const int32_t n = dst[a], first = first_state[n];
    if (only[n] != kMany) return first;
    const auto begin = state_label.begin() + first;
    auto end = begin;
    while (end != state_label.end() && node[static_cast<size_t>(end - state_label.begin())] == n)
      ++end;
    return static_cast<int32_t>(std::lower_bound(begin, end, label[a]) - state_label.begin());
  };

  // Whether the only term of a state leads to the non-emitting state of its node.
  const auto leads_on = [&](int32_t v) { return value[node[v]] != v; };
  out.offset.resize(static_cast<size_t>(num_values) + 1);
  int32_t num_terms = 0;
  for (int32_t v = 0; v < num_values; ++v) {
    out.offset[v] = num_terms;
    num_terms += leads_on(v) ? 1 : num_out[node[v]];
  }
  out.offset[num_values] = num_terms;
  out.index.resize(num_terms);
  out.arc.resize(num_terms);
  middle.assign(out.offset.begin(), out.offset.end() - 1);
  // Adds the terms of arcs to rows.
  const auto add_terms = [rows = middle.data(), index = out.index.data(), arc = out.arc.data(),
                          from = value.data(), src,
                          label](int32_t begin, int32_t end, const auto& state_of) {
    for (int32_t a = begin; a < end; ++a) {
      if (label[a] == kEpsilon) continue;
      const int32_t k = rows[from[src[a]]]++;
      index[k] = state_of(a);
      arc[k] = a;
    }
  };
  poll();
  int32_t before = 0;  // where the terms of the segment before begin
  for (const auto [begin, end, repeats] : segments) {
    if (repeats) {
      int32_t& next = middle[value[src[begin]]];
      std::copy_n(out.index.data() + before, end - begin, out.index.data() + next);
      std::iota(out.arc.data() + next, out.arc.data() + next + (end - begin), begin);
      before = std::exchange(next, next + (end - begin));
      continue;
    }
    before = middle[value[src[begin]]];
    if (has_many)
      add_terms(begin, end, state_of);
    else
      add_terms(begin, end, [dst, to = first_state.data()](int32_t a) { return to[dst[a]]; });
  }
  poll();
  if (num_values > num_emitting) {
    is_entered_.resize(static_cast<size_t>(num_values - num_emitting));
    std::vector<int32_t> next(middle.begin(), middle.end());
    const auto join = [&](int32_t from, int32_t to, int32_t arc) {
      is_entered_[to - num_emitting] = true;
      out.index[next[from]] = to;
      out.arc[next[from]++] = arc;
    };
    for (int32_t p = 0; p < num_emitting; ++p)
      if (leads_on(p)) join(p, value[node[p]], -1);
    for (int32_t a : epsilons) join(value[src[a]], value[dst[a]], a);
  }

  start.reserve(topology.start().size());
  accept.reserve(topology.accept().size());
  for (int32_t n : topology.start()) start.push_back(value[n]);
  for (int32_t n : topology.accept()) accept.push_back(value[n]);

  set_labels(std::move(state_label));
}

void TrellisGraph::set_labels(std::vector<int32_t> state_labels) {
  slot = std::move(state_labels);
  const int32_t top = slot.empty() ? 0 : *std::ranges::max_element(slot);
  // A table of all labels is faster than sorting, unless the labels are far apart.
  if (top < 8 * static_cast<int64_t>(slot.size()) + 4096) {
    std::vector<int32_t> at(static_cast<size_t>(top) + 1, -1);
    for (int32_t l : slot) at[l] = 0;
    labels.reserve(static_cast<size_t>(std::ranges::count(at, 0)));
    for (int32_t l = 0; l <= top; ++l) {
      if (at[l] < 0) continue;
      at[l] = static_cast<int32_t>(labels.size());
      labels.push_back(l);
    }
    for (int32_t& s : slot) s = at[s];
  } else {
    labels = slot;
    std::sort(labels.begin(), labels.end());
    labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
    for (int32_t& s : slot)
      s = static_cast<int32_t>(std::ranges::lower_bound(labels, s) - labels.begin());
  }
}

const Rows& TrellisGraph::in() const {
  in_once_.call([&] {
    in_.offset.assign(static_cast<size_t>(num_values) + 2, 0);
    in_.index.resize(out.index.size());
    in_.arc.resize(out.index.size());
    // Counts are stored two entries ahead: filling the rows then moves each offset to its place.
    for (int32_t to : out.index) ++in_.offset[to + 2];
    for (int32_t v = 2; v <= num_values; ++v) in_.offset[v + 1] += in_.offset[v];
    for (int32_t v = 0; v < num_values; ++v)
      for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
        const int32_t at = in_.offset[out.index[k] + 1]++;
        in_.index[at] = v;
        in_.arc[at] = out.arc[k];
      }
    in_.offset.pop_back();
  });
  return in_;
}

/// Whether non-emitting states matter between the first and the last frame. A start that no arc
/// enters matters only before the first frame, and a state without arcs to emitting states only
/// after the last.
bool TrellisGraph::has_inner_non_emitting() const {
  for (int32_t s = num_emitting; s < num_values; ++s)
    if (is_entered(s) && out.offset[s] < middle[s]) return true;
  return false;
}

void TrellisGraph::find_offsets() {
  constexpr int32_t kFarthest = 64;  // the padding of rows grows with the offsets
  if (num_emitting == 0 || has_inner_non_emitting()) return;
  std::array<int32_t, 2 * kFarthest + 1> last;  // for each offset, the last state with such an arc
  last.fill(-1);
  std::array<int32_t, kMostDiagonals> found;
  size_t count = 0;
  int64_t terms = 0;
  for (int32_t p = 0; p < num_emitting; ++p) {
    terms += middle[p] - out.offset[p];
    for (int32_t k = out.offset[p]; k < middle[p]; ++k) {
      const int32_t offset = out.index[k] - p;
      if (std::abs(offset) > kFarthest) return;
      int32_t& before = last[offset + kFarthest];
      if (before == p) return;  // parallel arcs: a diagonal has one cell per pair of states
      if (before < 0) {
        if (count == found.size()) return;
        found[count++] = offset;
      }
      before = p;
    }
  }
  // Diagonals with mostly missing arcs would waste time.
  constexpr int64_t kMostCellsPerTerm = 4;
  if (static_cast<int64_t>(count) * num_emitting > kMostCellsPerTerm * terms + 64) return;
  offsets.assign(found.begin(), found.begin() + count);
  std::ranges::sort(offsets);
}

void TrellisGraph::find_density() {
  constexpr int32_t kFewest = 16;
  if (num_emitting < kFewest || has_inner_non_emitting()) return;
  int64_t between = 0;
  for (int32_t p = 0; p < num_emitting; ++p) between += middle[p] - out.offset[p];
  if (2 * between < static_cast<int64_t>(num_emitting) * num_emitting) return;
  // The matrix has one cell per pair of states, so parallel arcs do not fit. Ascending destinations
  // are distinct.
  std::vector<int32_t> last(num_emitting, -1);
  for (int32_t p = 0; p < num_emitting; ++p) {
    const int32_t* const index = out.index.data();
    int32_t num_descents = 0;
    for (int32_t k = out.offset[p] + 1; k < middle[p]; ++k)
      num_descents += index[k - 1] >= index[k] ? 1 : 0;
    for (int32_t k = out.offset[p]; k < middle[p] && num_descents > 0; ++k) {
      if (last[index[k]] == p) return;
      last[index[k]] = p;
    }
  }
  is_dense = true;
}

void TrellisGraph::find_spans() {
  // A self-loop is a cycle. Most graphs have one, and it is fast to find.
  for (int32_t p = 0; p < num_emitting; ++p)
    for (int32_t k = out.offset[p]; k < middle[p]; ++k)
      if (out.index[k] == p) return;
  std::vector<int32_t> in_degree(num_values), order;
  for (int32_t to : out.index) ++in_degree[to];
  for (int32_t v = 0; v < num_values; ++v)
    if (in_degree[v] == 0) order.push_back(v);
  for (size_t head = 0; head < order.size(); ++head)
    for (int32_t k = out.offset[order[head]]; k < out.offset[order[head] + 1]; ++k)
      if (--in_degree[out.index[k]] == 0) order.push_back(out.index[k]);
  if (order.size() < static_cast<size_t>(num_values)) return;

  constexpr int32_t kNever = std::numeric_limits<int32_t>::max() / 2;
  std::vector<Span> spans(num_values, {kNever, -kNever, kNever, -kNever});
  for (int32_t v : start) spans[v].least_before = spans[v].most_before = 0;
  for (int32_t v : accept) spans[v].least_after = spans[v].most_after = 0;
  for (int32_t v : order)
    for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
      Span& to = spans[out.index[k]];
      const int32_t frame = out.index[k] < num_emitting ? 1 : 0;
      to.least_before = std::min(to.least_before, spans[v].least_before + frame);
      to.most_before = std::max(to.most_before, spans[v].most_before + frame);
    }
  for (auto v = order.rbegin(); v != order.rend(); ++v)
    for (int32_t k = out.offset[*v]; k < out.offset[*v + 1]; ++k) {
      const Span& to = spans[out.index[k]];
      const int32_t frame = out.index[k] < num_emitting ? 1 : 0;
      spans[*v].least_after = std::min(spans[*v].least_after, to.least_after + frame);
      spans[*v].most_after = std::max(spans[*v].most_after, to.most_after + frame);
    }
  spans.resize(num_emitting);
  spans_ = std::move(spans);
}

std::string TrellisGraph::describe_weight(size_t index) const {
  const auto first_start = static_cast<size_t>(first_start_weight_);
  const auto first_accept = static_cast<size_t>(first_accept_weight_);
  if (has_node_weights && index >= first_accept)
    return text("the accept weight of node ", node[accept[index - first_accept]]);
  if (has_node_weights && index >= first_start)
    return text("the start weight of node ", node[start[index - first_start]]);
  return text("arc ", index);
}

double TrellisGraph::occupancy(int32_t frames) const {
  if (spans_.empty() || frames == 0) return 1.0;
  int64_t cells = 0;
  for (const Span& span : spans_) {
    const int32_t first = std::max(span.least_before, frames - span.most_after);
    const int32_t last = std::min(span.most_before, frames - span.least_after);
    if (last >= first) cells += last - first + 1;
  }
  return static_cast<double>(cells) / (static_cast<double>(frames) * num_emitting);
}

const std::shared_ptr<const TrellisGraph>& trellis_graph(const Topology& topology, Side side) {
  const bool by_input = side == Side::input || topology.is_acceptor();
  return interruptible_memo<std::shared_ptr<const TrellisGraph>>(
      topology, by_input ? Memo::trellis_by_input : Memo::trellis_by_output, [&] {
        return std::make_shared<const TrellisGraph>(topology,
                                                    by_input ? Side::input : Side::output);
      });
}

}  // namespace arcgrad::trellis
