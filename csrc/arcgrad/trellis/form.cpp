#include "arcgrad/trellis/form.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "arcgrad/trellis/steps.h"

namespace arcgrad::trellis {
namespace {

/// Calls each(f) once to count and once to fill: `each` calls f(from, to, arc) for every term,
/// where `from` is source(arc) if there is an arc.
template <class Each, class Source>
void make_rows(int32_t num_values, Rows& in, Rows& out, Each each, Source source) {
  const auto num_offsets = static_cast<size_t>(num_values) + 2;
  // Counted one further, so that filling leaves the offsets where they belong.
  in.offset.assign(num_offsets, 0);
  out.offset.assign(num_offsets, 0);
  size_t num_terms = 0;
  each([&](int32_t from, int32_t to, int32_t) {
    ++in.offset[to + 2];
    ++out.offset[from + 2];
    ++num_terms;
  });
  for (Rows* rows : {&in, &out}) {
    for (int32_t r = 2; r <= num_values; ++r) rows->offset[r + 1] += rows->offset[r];
    rows->index.resize(num_terms);
    rows->arc.resize(num_terms);
  }
  each([&](int32_t from, int32_t to, int32_t arc) {
    const int32_t i = in.offset[to + 1]++, o = out.offset[from + 1]++;
    in.arc[i] = arc;
    if (arc < 0) in.index[i] = from;
    out.index[o] = to;
    out.arc[o] = arc;
  });
  // Arcs mostly come by source, so what goes to in-rows is scattered: reading that way costs less.
  for (size_t k = 0; k < num_terms; ++k)
    if (in.arc[k] >= 0) in.index[k] = source(in.arc[k]);
  in.offset.pop_back();
  out.offset.pop_back();
}

/// The nodes ordered so that epsilon arcs go forward; shorter than all nodes if they form a cycle.
std::vector<int32_t> epsilon_order(int32_t num_nodes, const std::vector<int32_t>& arcs,
                                   std::span<const int32_t> src, std::span<const int32_t> dst) {
  std::vector<int32_t> offset(static_cast<size_t>(num_nodes) + 1), missing(num_nodes), to;
  for (int32_t a : arcs) {
    ++offset[src[a] + 1];
    ++missing[dst[a]];
  }
  std::partial_sum(offset.begin(), offset.end(), offset.begin());
  to.resize(arcs.size());
  std::vector<int32_t> next(offset.begin(), offset.end() - 1), order;
  for (int32_t a : arcs) to[next[src[a]]++] = dst[a];
  order.reserve(num_nodes);
  for (int32_t n = 0; n < num_nodes; ++n)
    if (missing[n] == 0) order.push_back(n);
  for (size_t head = 0; head < order.size(); ++head)
    for (int32_t k = offset[order[head]]; k < offset[order[head] + 1]; ++k)
      if (--missing[to[k]] == 0) order.push_back(to[k]);
  return order;
}

}  // namespace

Form::Form(const Topology& topology, Side side) {
  build(topology, side);
  if (has_epsilon_cycle) return;
  find_offsets();
  find_density();
  find_spans();
}

void Form::build(const Topology& topology, Side side) {
  const auto src = topology.src(), dst = topology.dst(), label = topology.label(side);
  const int32_t num_nodes = topology.num_nodes();
  num_arcs = topology.num_arcs();

  // The ways into each node: (node, label) pairs, in that order.
  std::vector<int32_t> epsilons;
  std::vector<std::pair<int32_t, int32_t>> ways;
  // In most graphs all labels into a node are equal, which needs no sorting.
  constexpr int32_t kNone = -2, kMany = -3;
  std::vector<int32_t> only(num_nodes, kNone);
  for (int32_t a = 0; a < num_arcs; ++a) {
    if (label[a] == kEpsilon) {
      epsilons.push_back(a);
      continue;
    }
    int32_t& seen = only[dst[a]];
    if (seen == kNone)
      seen = label[a];
    else if (seen != label[a])
      seen = kMany;
  }
  bool has_many = false;
  for (int32_t n = 0; n < num_nodes; ++n) has_many |= only[n] == kMany;
  if (has_many) {
    for (int32_t a = 0; a < num_arcs; ++a)
      if (label[a] != kEpsilon && only[dst[a]] == kMany) ways.emplace_back(dst[a], label[a]);
    std::sort(ways.begin(), ways.end());
    ways.erase(std::unique(ways.begin(), ways.end()), ways.end());
  }
  std::vector<int32_t> order;
  if (!epsilons.empty()) {
    order = epsilon_order(num_nodes, epsilons, src, dst);
    if (order.size() < static_cast<size_t>(num_nodes)) {
      has_epsilon_cycle = true;
      return;
    }
  }

  // Places, in the order of nodes and labels. `value` is the value that stands for a node.
  std::vector<int32_t> value(num_nodes, -1), first_place(num_nodes, -1), place_label;
  place_label.reserve(num_nodes);
  node.reserve(num_nodes);
  std::vector<bool> has_epsilon(num_nodes);
  for (int32_t a : epsilons) has_epsilon[dst[a]] = true;
  size_t w = 0;
  for (int32_t n = 0; n < num_nodes; ++n) {
    if (only[n] == kNone) continue;
    first_place[n] = static_cast<int32_t>(node.size());
    if (only[n] == kMany) {
      for (; w < ways.size() && ways[w].first == n; ++w) {
        node.push_back(n);
        place_label.push_back(ways[w].second);
      }
    } else {
      node.push_back(n);
      place_label.push_back(only[n]);
      if (!has_epsilon[n]) value[n] = first_place[n];
    }
  }
  num_places = static_cast<int32_t>(node.size());
  for (int32_t k = 0; k < num_nodes; ++k) {
    const int32_t n = order.empty() ? k : order[k];
    if (value[n] >= 0) continue;
    value[n] = static_cast<int32_t>(node.size());
    node.push_back(n);
  }
  num_values = static_cast<int32_t>(node.size());

  auto place_of = [&](int32_t a) {
    const int32_t n = dst[a], first = first_place[n];
    if (only[n] != kMany) return first;
    const auto begin = place_label.begin() + first;
    auto end = begin;
    while (end != place_label.end() && node[static_cast<size_t>(end - place_label.begin())] == n)
      ++end;
    return static_cast<int32_t>(std::lower_bound(begin, end, label[a]) - place_label.begin());
  };
  make_rows(
      num_values, in, out,
      [&](auto join) {
        if (has_many) {
          for (int32_t a = 0; a < num_arcs; ++a)
            if (label[a] != kEpsilon) join(value[src[a]], place_of(a), a);
        } else {
          for (int32_t a = 0; a < num_arcs; ++a)
            if (label[a] != kEpsilon) join(value[src[a]], first_place[dst[a]], a);
        }
        for (int32_t p = 0; p < num_places; ++p)
          if (value[node[p]] >= num_places) join(p, value[node[p]], -1);
        for (int32_t a : epsilons) join(value[src[a]], value[dst[a]], a);
      },
      [&](int32_t a) { return value[src[a]]; });

  for (int32_t n : topology.start()) start.push_back(value[n]);
  for (int32_t n : topology.accept()) accept.push_back(value[n]);

  slot.resize(place_label.size());
  const int32_t top = place_label.empty() ? 0 : *std::ranges::max_element(place_label);
  if (top < 8 * static_cast<int64_t>(place_label.size()) + 4096) {
    std::vector<int32_t> at(static_cast<size_t>(top) + 1, -1);
    for (int32_t l : place_label) at[l] = 0;
    for (int32_t l = 0; l <= top; ++l) {
      if (at[l] < 0) continue;
      at[l] = static_cast<int32_t>(labels.size());
      labels.push_back(l);
    }
    for (size_t p = 0; p < slot.size(); ++p) slot[p] = at[place_label[p]];
  } else {
    labels = place_label;
    std::sort(labels.begin(), labels.end());
    labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
    for (size_t p = 0; p < slot.size(); ++p)
      slot[p] =
          static_cast<int32_t>(std::ranges::lower_bound(labels, place_label[p]) - labels.begin());
  }
}

void Form::find_offsets() {
  constexpr int32_t kFarthest = 64;
  if (num_places == 0) return;
  std::vector<int32_t> found;
  int64_t terms = 0;
  for (int32_t p = 0; p < num_places; ++p)
    for (int32_t k = in.offset[p]; k < in.offset[p + 1]; ++k) {
      if (in.index[k] >= num_places) {
        // A start that nothing enters is done after the first frame.
        if (in.offset[in.index[k]] == in.offset[in.index[k] + 1]) continue;
        return;
      }
      const int32_t distance = p - in.index[k];
      ++terms;
      if (std::ranges::find(found, distance) != found.end()) continue;
      if (found.size() == kMostDiagonals || std::abs(distance) > kFarthest) return;
      found.push_back(distance);
    }
  // Two arcs between the same places would need the same cell of a diagonal.
  for (int32_t p = 0; p < num_places; ++p)
    for (int32_t k = in.offset[p]; k < in.offset[p + 1]; ++k)
      for (int32_t j = in.offset[p]; j < k; ++j)
        if (in.index[j] == in.index[k]) return;
  // Sums are allowed only where they do not take part in the recursion over frames.
  for (int32_t s = num_places; s < num_values; ++s) {
    const bool is_entered = in.offset[s] < in.offset[s + 1];
    for (int32_t k = out.offset[s]; k < out.offset[s + 1]; ++k)
      if (is_entered && out.index[k] < num_places) return;
  }
  constexpr int64_t kMostCellsPerTerm = 4;
  if (static_cast<int64_t>(found.size()) * num_places > kMostCellsPerTerm * terms + 64) return;
  std::ranges::sort(found);
  offsets = std::move(found);
}

void Form::find_density() {
  constexpr int32_t kFewest = 16;
  if (num_places < kFewest) return;
  int64_t between = 0;
  for (int32_t p = 0; p < num_places; ++p)
    for (int32_t k = in.offset[p]; k < in.offset[p + 1]; ++k) {
      if (in.index[k] < num_places)
        ++between;
      else if (in.offset[in.index[k]] < in.offset[in.index[k] + 1])
        return;
    }
  if (2 * between < static_cast<int64_t>(num_places) * num_places) return;
  // Parallel arcs between two places would need the same cell of the matrix.
  std::vector<int32_t> last(num_places, -1);
  for (int32_t p = 0; p < num_places; ++p)
    for (int32_t k = in.offset[p]; k < in.offset[p + 1]; ++k) {
      if (in.index[k] >= num_places) continue;
      if (last[in.index[k]] == p) return;
      last[in.index[k]] = p;
    }
  is_dense = true;
}

void Form::find_spans() {
  // Most graphs here have self-loops, which needs no search to see.
  for (int32_t p = 0; p < num_places; ++p)
    for (int32_t k = in.offset[p]; k < in.offset[p + 1]; ++k)
      if (in.index[k] == p) return;
  std::vector<int32_t> missing(num_values), order;
  for (int32_t v = 0; v < num_values; ++v) {
    missing[v] = in.offset[v + 1] - in.offset[v];
    if (missing[v] == 0) order.push_back(v);
  }
  for (size_t head = 0; head < order.size(); ++head)
    for (int32_t k = out.offset[order[head]]; k < out.offset[order[head] + 1]; ++k)
      if (--missing[out.index[k]] == 0) order.push_back(out.index[k]);
  if (order.size() < static_cast<size_t>(num_values)) return;

  constexpr int32_t kNever = std::numeric_limits<int32_t>::max() / 2;
  std::vector<Span> spans(num_values, {kNever, -kNever, kNever, -kNever});
  for (int32_t v : start) spans[v].least_before = spans[v].most_before = 0;
  for (int32_t v : accept) spans[v].least_after = spans[v].most_after = 0;
  for (int32_t v : order)
    for (int32_t k = in.offset[v]; k < in.offset[v + 1]; ++k) {
      const Span& from = spans[in.index[k]];
      const int32_t frame = v < num_places ? 1 : 0;
      spans[v].least_before = std::min(spans[v].least_before, from.least_before + frame);
      spans[v].most_before = std::max(spans[v].most_before, from.most_before + frame);
    }
  for (auto v = order.rbegin(); v != order.rend(); ++v)
    for (int32_t k = out.offset[*v]; k < out.offset[*v + 1]; ++k) {
      const Span& to = spans[out.index[k]];
      const int32_t frame = out.index[k] < num_places ? 1 : 0;
      spans[*v].least_after = std::min(spans[*v].least_after, to.least_after + frame);
      spans[*v].most_after = std::max(spans[*v].most_after, to.most_after + frame);
    }
  spans.resize(num_places);
  spans_ = std::move(spans);
}

double Form::occupancy(int32_t frames) const {
  if (spans_.empty() || frames == 0) return 1.0;
  int64_t cells = 0;
  for (const Span& span : spans_) {
    const int32_t first = std::max(span.least_before, frames - span.most_after);
    const int32_t last = std::min(span.most_before, frames - span.least_after);
    if (last >= first) cells += last - first + 1;
  }
  return static_cast<double>(cells) / (static_cast<double>(frames) * num_places);
}

}  // namespace arcgrad::trellis
