#include "arcgrad/gtn/compose.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/composition_search.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/runtime/error.h"

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

template <class First, class Second>
void explore(const First& first, const Second& second, Outer outer, CompositionSearch& search) {
  const auto add = [&](int32_t a1, int32_t a2, const Pair& to) { search.add({a1, a2}, to); };
  // Calls f(arc) for each arc of an outer node that may be matched.
  const auto for_each = [](const auto& arcs, const Pair& from, int32_t node, const auto& f) {
    for (int32_t k = arcs.begin(node), end = arcs.begin(node + 1); k < end; ++k) {
      const int32_t a = arcs.arc(k);
      if (from.filter == kPlain || arcs.label(a) != kEpsilon) f(a);
    }
  };
  constexpr bool is_first_list = std::is_same_v<First, ArcList>;
  constexpr bool is_second_list = std::is_same_v<Second, ArcList>;
  const auto expand = [&](const Pair& from) {
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
  };
  search.explore([](int32_t, int32_t) {}, expand);
}

/// The part of the search that lies on accepted paths.
Composed collect(const CompositionSearch& search, const Topology& first, const Topology& second) {
  AcceptedPaths paths = find_accepted_paths(search);
  Arrays& out = paths.arrays;
  // An arc of emissions has the label of the arc that it is matched with.
  const auto labels = [&](bool is_first) {
    const bool is_matched =
        (is_first ? first : second).dense() && !(is_first ? second : first).dense();
    const bool from_first = is_first != is_matched;
    const auto label = from_first ? first.label(is_matched ? Side::output : Side::input)
                                  : second.label(is_matched ? Side::input : Side::output);
    const int32_t* const own = (is_first ? paths.first : paths.second).data();
    const int32_t* const arcs = (from_first ? paths.first : paths.second).data();
    Column column(out.src.size());
    for (size_t k = 0; k < column.size(); ++k) column[k] = own[k] < 0 ? kEpsilon : label[arcs[k]];
    return column;
  };
  out.ilabel = labels(true);
  if (!first.is_acceptor() || !second.is_acceptor()) {
    out.olabel = labels(false);
    if (out.ilabel == out.olabel) out.olabel = Column();
  }
  return {std::move(out), ArcMap::gather(std::move(paths.first)),
          ArcMap::gather(std::move(paths.second))};
}

/// The composition of two topologies whose arcs have an order.
struct OrderedCompose {
  ArcOrder first_order = {}, second_order = {};
  Outer outer = Outer::first;
  Composed operator()(const char* op, const Topology& first, const Topology& second) const;
};

Composed OrderedCompose::operator()(const char* op, const Topology& first,
                                    const Topology& second) const {
  CompositionSearch search(op, first, second, 3);
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

ArcOrder order_of(const Product& product) {
  const auto* const compose = product.compose().target<OrderedCompose>();
  if (!compose) return {};
  return product.side() == Side::output ? compose->first_order : compose->second_order;
}

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
  const Graph &a = first.graph, &b = second.graph;
  if (is_lazy(a) || is_lazy(b)) return compose_as(op, a, b, OrderedCompose());
  const OrderedCompose compose{first.order, second.order, outer};
  if (is_deferred(a, b)) return compose_as(op, a, b, compose);
  return compose_eagerly(op, a, b, compose);
}

}  // namespace arcgrad::gtn
