#include "arcgrad/gtn/compose.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The composition of gtn: a breadth-first search over pairs of nodes from the pairs of start nodes.
// Pairs without a path to a pair of accept nodes are left out, which does not change the order of
// the others.
//
// Its epsilon filter matches epsilon arcs of both graphs with each other. After an epsilon arc of
// one graph alone, only arcs of that graph alone follow until both take an arc together. So a pair
// of nodes is up to three nodes of the composition.
//
// The arcs of a node are listed in this order: matched arcs, epsilon arcs of the first graph,
// epsilon arcs of the second. Matched arcs follow the arcs of one of the two nodes, and for each of
// them those of the other node. The outer node is of the first graph, except:
//   only the first graph is marked as sorted: of the second graph;
//   both are marked: the one with fewer arcs.
// Time: O(arcs of the search), apart from the label lookups.

namespace arcgrad::gtn {
namespace {

enum Filter : uint8_t { kPlain = 0, kFollowFirst = 1, kFollowSecond = 2 };

/// The arcs of emissions, without making their arrays. They have one arc per label and no epsilon.
class EmissionArcs {
 public:
  explicit EmissionArcs(const Topology::Dense& shape) : shape_(shape) {}
  template <class F>
  void match(int32_t node, int32_t label, const F& f) const {
    if (node < shape_.frames && label >= 0 && label < shape_.labels)
      f(node * shape_.labels + label, node + 1);
  }
  template <class F>
  void match_epsilon(int32_t, const F&) const {}

 private:
  Topology::Dense shape_;
};

/// Which of two nodes the outer loop over matched arcs follows.
enum class Outer : uint8_t { first, second, smaller };

/// The two input arcs that an arc is made of; -1 for an input that takes no arc.
struct ArcPair {
  int32_t first, second;
};

/// The nodes that start nodes reach, and their arcs in the order of their sources.
struct Search {
  Search(const char* op, const Topology& first, const Topology& second)
      : ids(op, first.num_nodes(), second.num_nodes(), 3), limit(op, first, second) {}
  PairIds ids;
  SearchLimit limit;
  int32_t num_start = 0;
  PodVector<int32_t> offset, dst;
  PodVector<ArcPair> pairs;
};

template <class First, class Second>
void explore(const First& first, const Second& second, Outer outer, Search& search) {
  PairIds& ids = search.ids;
  const auto add = [&](int32_t a1, int32_t a2, const Pair& to) {
    search.dst.push_back(ids[ids.key(to)]);
    search.pairs.push_back({a1, a2});
  };
  // Calls f(arc) for each arc of an outer node that may be matched.
  const auto for_each = [](const auto& arcs, const Pair& from, int32_t node, const auto& f) {
    for (int32_t k = arcs.begin(node), end = arcs.begin(node + 1); k < end; ++k) {
      const int32_t a = arcs.arc(k);
      if (from.filter == kPlain || arcs.label(a) != kEpsilon) f(a);
    }
  };
  constexpr bool is_first_list = std::is_same_v<First, ArcList>;
  constexpr bool is_second_list = std::is_same_v<Second, ArcList>;
  InterruptPoll poll;
  search.offset.push_back(0);
  for (int32_t n = 0; n < ids.size(); ++n) {
    const Pair from = ids.pair(n);
    const int32_t n1 = from.first, n2 = from.second;
    bool is_first_outer = outer == Outer::first;
    if constexpr (is_first_list && is_second_list)
      if (outer == Outer::smaller)
        is_first_outer =
            first.begin(n1 + 1) - first.begin(n1) <= second.begin(n2 + 1) - second.begin(n2);
    if constexpr (is_first_list)
      if (!is_second_list || is_first_outer)
        for_each(first, from, n1, [&](int32_t a1) {
          second.match(n2, first.label(a1),
                       [&](int32_t a2, int32_t to) { add(a1, a2, {first.dst(a1), to}); });
        });
    if constexpr (is_second_list)
      if (!is_first_list || !is_first_outer)
        for_each(second, from, n2, [&](int32_t a2) {
          first.match(n1, second.label(a2),
                      [&](int32_t a1, int32_t to) { add(a1, a2, {to, second.dst(a2)}); });
        });
    if (from.filter != kFollowSecond)
      first.match_epsilon(n1, [&](int32_t a1, int32_t to) { add(a1, -1, {to, n2, kFollowFirst}); });
    if (from.filter != kFollowFirst)
      second.match_epsilon(n2,
                           [&](int32_t a2, int32_t to) { add(-1, a2, {n1, to, kFollowSecond}); });
    search.limit.check(ids.size(), search.dst.size());
    poll(1 + search.dst.size() - search.offset[n]);
    search.offset.push_back(static_cast<int32_t>(search.dst.size()));
  }
}

/// Marks the nodes with a path to a marked node.
void mark_coaccessible(const Search& search, std::vector<uint8_t>& kept) {
  // In a breadth-first search most arcs lead to later nodes, so one pass mostly suffices.
  bool changed = false;
  const auto has_kept = [&](int32_t n) {
    for (int32_t k = search.offset[n]; k < search.offset[n + 1]; ++k)
      if (kept[search.dst[k]]) return true;
    return false;
  };
  const int32_t num_nodes = search.ids.size();
  for (int32_t n = num_nodes; n-- > 0;) kept[n] = kept[n] || has_kept(n);
  for (int32_t n = 0; n < num_nodes && !changed; ++n) changed = !kept[n] && has_kept(n);
  if (!changed) return;
  // The arcs by destination, and a search backwards.
  const auto num_arcs = search.dst.size();
  std::vector<int32_t> begin(static_cast<size_t>(num_nodes) + 2), src(num_arcs), stack;
  for (int64_t k = 0; k < num_arcs; ++k) ++begin[search.dst[k] + 2];
  for (size_t n = 2; n < begin.size(); ++n) begin[n] += begin[n - 1];
  for (int32_t n = 0; n < num_nodes; ++n)
    for (int32_t k = search.offset[n]; k < search.offset[n + 1]; ++k)
      src[begin[search.dst[k] + 1]++] = n;
  for (int32_t n = 0; n < num_nodes; ++n)
    if (kept[n]) stack.push_back(n);
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    for (int32_t k = begin[n]; k < begin[n + 1]; ++k)
      if (!std::exchange(kept[src[k]], 1)) stack.push_back(src[k]);
  }
}

/// The part of the search that lies on accepted paths.
Composed collect(const Search& search, const Topology& first, const Topology& second) {
  const int32_t num_nodes = search.ids.size();
  std::vector<uint8_t> is_accept(static_cast<size_t>(num_nodes)), kept;
  for (int32_t n = 0; n < num_nodes; ++n) {
    const Pair pair = search.ids.pair(n);
    is_accept[n] = first.is_accept(pair.first) && second.is_accept(pair.second);
  }
  kept = is_accept;
  mark_coaccessible(search, kept);
  Arrays out;
  std::vector<int32_t> id(static_cast<size_t>(num_nodes), -1);
  for (int32_t n = 0; n < num_nodes; ++n) {
    if (!kept[n]) continue;
    id[n] = out.num_nodes++;
    if (n < search.num_start) out.start.push_back(id[n]);
    if (is_accept[n]) out.accept.push_back(id[n]);
  }
  const auto most = static_cast<size_t>(search.dst.size());
  std::vector<int32_t> map1(most), map2(most);
  for (auto* column : {&out.src, &out.dst}) column->resize(most);
  size_t a = 0;
  for (int32_t n = 0; n < num_nodes; ++n) {
    if (!kept[n]) continue;
    for (int32_t k = search.offset[n]; k < search.offset[n + 1]; ++k) {
      out.src[a] = id[n];
      out.dst[a] = id[search.dst[k]];
      map1[a] = search.pairs[k].first;
      map2[a] = search.pairs[k].second;
      a += out.dst[a] >= 0;
    }
  }
  for (auto* column : {&out.src, &out.dst}) column->resize(a);
  map1.resize(a);
  map2.resize(a);
  // An arc of emissions has the label of the arc that it is matched with.
  const auto labels = [&](bool is_first) {
    const bool is_matched =
        (is_first ? first : second).dense() && !(is_first ? second : first).dense();
    const bool from_first = is_first != is_matched;
    const auto label = from_first ? first.label(is_matched ? Side::output : Side::input)
                                  : second.label(is_matched ? Side::input : Side::output);
    const int32_t* const own = (is_first ? map1 : map2).data();
    const int32_t* const arcs = (from_first ? map1 : map2).data();
    Column column(a);
    for (size_t k = 0; k < a; ++k) column[k] = own[k] < 0 ? kEpsilon : label[arcs[k]];
    return column;
  };
  out.ilabel = labels(true);
  if (!first.is_acceptor() || !second.is_acceptor()) {
    out.olabel = labels(false);
    if (out.ilabel == out.olabel) out.olabel = Column();
  }
  return {std::move(out), ArcMap::gather(std::move(map1)), ArcMap::gather(std::move(map2))};
}

Composed compose_topologies(const char* op, const Topology& first, const ArcOrder& first_order,
                            const Topology& second, const ArcOrder& second_order, Outer outer) {
  Search search(op, first, second);
  for (const int32_t n1 : first.start())
    for (const int32_t n2 : second.start()) search.ids[search.ids.key({n1, n2})];
  search.num_start = search.ids.size();
  const auto &dense1 = first.dense(), &dense2 = second.dense();
  const auto list1 = [&] { return ArcList(first, Side::output, first_order); };
  const auto list2 = [&] { return ArcList(second, Side::input, second_order); };
  if (dense1 && !dense2)
    explore(EmissionArcs(*dense1), list2(), outer, search);
  else if (dense2 && !dense1)
    explore(list1(), EmissionArcs(*dense2), outer, search);
  else
    explore(list1(), list2(), outer, search);
  return collect(search, first, second);
}

/// gtn's marks of a graph. Emissions are sorted by both labels.
bool is_marked(const Ordered& graph, Side side, bool any_side) {
  if (is_emissions(graph.graph)) return true;
  const ArcOrder& order = graph.order;
  if (any_side) return order.by_ilabel || order.by_olabel;
  return side == Side::input ? order.by_ilabel : order.by_olabel;
}

bool is_lazy(const Graph& graph) { return graph.product() && !graph.product()->is_built(); }

}  // namespace

bool is_deferred(const Graph& first, const Graph& second) {
  if (!is_deferrable(first, second)) return false;
  const bool is_first = is_emissions(first);
  const Graph &emissions = is_first ? first : second, &graph = is_first ? second : first;
  return int64_t{emissions.num_nodes()} * graph.num_arcs() > thresholds.deferred_product;
}

bool is_large_product(const Graph& graph, int64_t most_arcs) {
  if (!is_lazy(graph)) return false;
  const Product& product = *graph.product();
  return int64_t{product.emissions().num_nodes()} * product.graph().num_arcs() > most_arcs;
}

Graph compose(const Ordered& first, const Ordered& second, bool is_intersection) {
  const char* const op = is_intersection ? "intersect" : "compose";
  const bool is_marked1 = is_marked(first, Side::output, is_intersection);
  const bool is_marked2 = is_marked(second, Side::input, is_intersection);
  const Outer outer = is_marked1 && is_marked2 ? Outer::smaller
                      : is_marked1             ? Outer::second
                                               : Outer::first;
  const Compose compose = [order1 = first.order, order2 = second.order, outer](
                              const char* name, const Topology& a, const Topology& b) {
    return compose_topologies(name, a, order1, b, order2, outer);
  };
  const Graph &a = first.graph, &b = second.graph;
  if (is_lazy(a) || is_lazy(b))
    return compose_as(op, a, b, [](const char* name, const Topology& s, const Topology& t) {
      return compose_topologies(name, s, {}, t, {}, Outer::first);
    });
  if (is_deferred(a, b)) return compose_as(op, a, b, compose);
  return compose_eagerly(op, a, b, compose);
}

}  // namespace arcgrad::gtn
