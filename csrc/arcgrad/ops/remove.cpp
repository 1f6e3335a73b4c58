#include "arcgrad/ops/remove.h"

#include <algorithm>
#include <utility>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/distances.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Weighted epsilon removal (Mohri 2002, "Generic epsilon-removal and input epsilon-normalization
// algorithms for weighted transducers"), for any pair of labels.
//
// The epsilon closure of node d is the set of nodes q that removed arcs lead to from d and that
// matter: q accepts, or kept arcs leave it. A kept arc (s, d, w) becomes one arc (s, q) of weight
// w + distance(d, q) for each such q, where the distance sums over the paths of removed arcs. Start
// nodes that removed arcs leave merge into a new start node, which takes over the kept arcs of
// their closure; if that closure accepts, the new node does, with the weight of the empty string as
// its accept weight. Nodes are visited in topological order, so that a closure is only computed if
// a kept arc still enters its node.
//
// The closures lie side by side in one graph, each with its own copy of the nodes it reaches, so
// that one PathScores computes all distances. They are an op of their own, and the result adds
// gathered weights to gathered distances; first and second order follow from these two ops. The
// cost is linear in the result and the sizes of the closures.

namespace arcgrad {
namespace {

/// What happens to an arc. It is left out if no arc of the result enters its source.
enum ArcAction : uint8_t { kKept = 0, kRemoved = 1, kLeftOut };
using ArcActions = Buffer<ArcAction>;

/// The outputs [begin, end) of EpsilonClosures::record(), one distance per node of the closure.
struct EpsilonClosure {
  int32_t begin = 0, end = 0;
};

/// The epsilon closures of some nodes and the distances to the nodes they reach.
class EpsilonClosures {
 public:
  EpsilonClosures(const char* op, const Graph& graph, const ArcActions& actions, Semiring semiring)
      : op_(op),
        graph_(graph),
        semiring_(semiring),
        matters_(static_cast<size_t>(graph.num_nodes()), 0),
        removed_begin_(matters_.size() + 1),
        position_(matters_.size(), -1) {
    const Topology& t = graph.topology();
    // Nodes on no accepted path are ignored: a cycle that diverges there is no error.
    Buffer<uint8_t> is_live(matters_.size(), 1);
    if (!t.is_acyclic() && connected(t).topology) {
      std::ranges::fill(is_live, 0);
      for (int32_t n : t.accept()) is_live[n] = t.is_start(n);
      for (int32_t a : std::span(connected(t).arcs).first(connected(t).topology->num_arcs()))
        is_live[t.src()[a]] = is_live[t.dst()[a]] = 1;
    }
    const Adjacency& out = t.out();
    removed_.resize(out.node.size() + 1);
    int32_t count = 0;
    for (size_t n = 0; n < matters_.size(); ++n) {
      poll_(1 + out.offset[n + 1] - out.offset[n]);
      const int32_t begin = removed_begin_[n] = count;
      if (!is_live[n]) continue;
      const int32_t first = out.offset[n], last = out.offset[n + 1];
      for (int32_t k = first; k < last; ++k) {  // without branches, which would be mispredicted
        removed_[count] = {out.arc(k), out.node[k]};
        count += actions[out.arc(k)];
      }
      matters_[n] = count - begin < last - first ? 1 : 0;
    }
    removed_begin_.back() = count;
    for (int32_t n : t.accept()) matters_[n] |= is_live[n];
  }

  /// Whether removed arcs leave the node.
  bool is_needed(int32_t node) const { return removed_begin_[node] < removed_begin_[node + 1]; }
  /// The node that an output is the distance to.
  int32_t node(int32_t output) const { return names_[targets_[output]]; }

  EpsilonClosure from_node(int32_t node) {
    const size_t first = names_.size();
    sources_.push_back(find_or_add(node, first));
    return close(first);
  }
  /// The closure of the union of several start nodes. Distances to it include start weights.
  EpsilonClosure from_starts(std::span<const int32_t> nodes) {
    const bool has_weights = graph_.has_node_weights();
    // With start weights, arcs from one more node have them.
    const auto root = static_cast<int32_t>(names_.size());
    if (has_weights) {
      names_.push_back(-1);
      sources_.push_back(root);
    }
    const size_t first = names_.size();
    for (int32_t n : nodes) {
      const int32_t copy = find_or_add(n, first);
      if (has_weights)
        add_arc(static_cast<size_t>(root), copy, graph_.topology().start_weight(n));
      else
        sources_.push_back(copy);
    }
    return close(first);
  }
  /// The output that sums over the accept nodes of the closure made last, or -1 if it has none.
  int32_t add_empty_string(EpsilonClosure closure) {
    const Topology& t = graph_.topology();
    const auto end = static_cast<int32_t>(names_.size());
    for (int32_t k = closure.begin; k < closure.end; ++k)
      if (t.is_accept(node(k))) add_arc(targets_[k], end, t.accept_weight(node(k)));
    if (arrays_.dst.empty() || arrays_.dst.back() != end) return -1;
    names_.push_back(-1);
    targets_.push_back(end);
    return static_cast<int32_t>(targets_.size()) - 1;
  }

  /// The distances as a recorded op of the graph.
  Graph record() && {
    arrays_.num_nodes = static_cast<int32_t>(names_.size());
    arrays_.ilabel.assign(arcs_.size(), kEpsilon);
    Weights weights = Weights::zeros(static_cast<int64_t>(arcs_.size()), graph_.dtype());
    ArcMap::gather(arcs_).apply(graph_.weights(), weights, 1.0);
    PathScores scores(std::make_shared<Topology>(std::move(arrays_)), weights, sources_,
                      {.op = op_,
                       .semiring = semiring_,
                       .keep = tracks(graph_),
                       .targets = targets_,
                       .exact_sums = true,
                       .names = names_});
    return record_distances(op_, graph_, {std::move(scores), std::move(arcs_), std::move(targets_)},
                            graph_.dtype());
  }

 private:
  struct RemovedArc {
    int32_t arc, dst;
  };

  /// Follows the removed arcs from the nodes whose copies begin at `first`.
  EpsilonClosure close(size_t first) {
    const int64_t first_arc = std::ssize(arcs_);
    for (size_t i = first; i < names_.size(); ++i)
      for (int32_t k = removed_begin_[names_[i]]; k < removed_begin_[names_[i] + 1]; ++k)
        add_arc(i, find_or_add(removed_[k].dst, first), removed_[k].arc);
    EpsilonClosure closure;
    closure.begin = static_cast<int32_t>(targets_.size());
    for (size_t i = first; i < names_.size(); ++i)
      if (matters_[names_[i]]) targets_.push_back(static_cast<int32_t>(i));
    closure.end = static_cast<int32_t>(targets_.size());
    poll_(std::ssize(arcs_) - first_arc);
    require_size(op_, "nodes reached over removed arcs", static_cast<int64_t>(names_.size()) + 1);
    require_size(op_, "removed arcs to be followed", static_cast<int64_t>(arcs_.size()));
    return closure;
  }
  void add_arc(size_t src, int32_t dst, int32_t arc) {
    arrays_.src.push_back(static_cast<int32_t>(src));
    arrays_.dst.push_back(dst);
    arcs_.push_back(arc);
  }
  /// The copy of a node in the closure whose copies begin at `first`.
  int32_t find_or_add(int32_t node, size_t first) {
    if (position_[node] < static_cast<int32_t>(first)) {
      position_[node] = static_cast<int32_t>(names_.size());
      names_.push_back(node);
    }
    return position_[node];
  }

  const char* op_;
  const Graph& graph_;
  Semiring semiring_;
  InterruptPoll poll_;
  Buffer<uint8_t> matters_;
  Buffer<RemovedArc> removed_;  // by source
  Column removed_begin_;
  Column position_;  // of each node, its last copy
  // The graph of all closures: its arcs, the input arc of each arc, the input node of each node.
  Arrays arrays_;
  Column arcs_, names_, sources_, targets_;
};

/// The new destinations of arcs that enter a node.
struct Route {
  int32_t id = 0;        // of the node in the result
  int32_t closure = -1;  // index in Rerouting::closures; -1: the arc still ends at the node
};

struct Rerouting {
  Buffer<uint8_t> is_entered;  // whether a node is in the result
  Buffer<Route> route;
  Buffer<EpsilonClosure> closures;
  int32_t num_nodes = 0;
  int64_t num_arcs = 0;
};

/// Finds the routes, and leaves out the arcs of nodes that no arc of the result enters. On a graph
/// with cycles, all arcs stay and connect() trims the result. `for_entered(f)` calls `f(arc, ...)`
/// for the arcs of the new start node, and `first_id` is the first id of the nodes in the result.
template <class ForEntered>
Rerouting reroute(const Topology& t, std::span<const int32_t> start, int32_t first_id,
                  EpsilonClosures& closures, const ForEntered& for_entered, ArcActions& actions) {
  const auto num_nodes = static_cast<size_t>(t.num_nodes());
  const auto dst = t.dst();
  const Adjacency& out = t.out();
  Rerouting to;
  to.is_entered.resize(num_nodes, t.is_acyclic() ? 0 : 1);
  to.route.resize(num_nodes);
  Buffer<uint32_t> num_in(t.num_in().begin(), t.num_in().end());
  for (size_t a = 0; a < actions.size(); ++a) num_in[dst[a]] -= actions[a];
  for_entered([&](int32_t a, int32_t) { ++num_in[dst[a]]; });
  for (int32_t n : start) to.is_entered[n] = 1;
  InterruptPoll poll;
  for (int32_t position = 0; position < t.num_nodes(); ++position) {
    const int32_t n = t.order().node(position);
    poll(1 + out.offset[n + 1] - out.offset[n]);
    to.route[n].closure = -1;
    if (num_in[n] > 0) {
      int32_t num = 1;
      if (closures.is_needed(n)) {
        const EpsilonClosure closure = closures.from_node(n);
        to.route[n].closure = static_cast<int32_t>(to.closures.size());
        to.closures.push_back(closure);
        num = closure.end - closure.begin;
        for (int32_t k = closure.begin; k < closure.end; ++k) to.is_entered[closures.node(k)] = 1;
      } else {
        to.is_entered[n] = 1;
      }
      to.num_arcs += static_cast<int64_t>(num_in[n]) * num;
    }
    if (to.is_entered[n]) [[likely]]
      continue;
    for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k)
      if (ArcAction& action = actions[out.arc(k)]; action == kKept) {
        --num_in[out.node[k]];
        action = kLeftOut;
      }
  }
  to.num_nodes = first_id;
  for (size_t n = 0; n < num_nodes; ++n) {
    to.route[n].id = to.num_nodes;
    to.num_nodes += to.is_entered[n];
  }
  return to;
}

}  // namespace

Graph remove_as(const char* op, const Graph& graph, int32_t ilabel, std::optional<int32_t> olabel,
                Semiring semiring) {
  const int32_t output = olabel.value_or(ilabel);
  require(ilabel >= kEpsilon && output >= kEpsilon, op,
          "the labels must be 0 or more, or epsilon (-1), but they are ", ilabel, " and ", output);
  const Topology& t = graph.topology();
  require_no_failures(op, t);
  const auto src = t.src(), dst = t.dst(), in = t.ilabel(), out = t.olabel();
  require_scorable(op, t, graph.weights());
  ArcActions actions(static_cast<size_t>(t.num_arcs()));
  uint8_t any = kKept;
  for (size_t a = 0; a < actions.size(); ++a)
    any |= actions[a] = static_cast<ArcAction>(int{in[a] == ilabel} & int{out[a] == output});
  if (!any) return connect(graph);
  EpsilonClosures closures(op, graph, actions, semiring);

  // The new start node and its arcs come first, so that a chain stays in order.
  Column merged, start;
  for (int32_t n : t.start()) (closures.is_needed(n) ? merged : start).push_back(n);
  EpsilonClosure entered;
  int32_t empty_string = -1;
  if (!merged.empty()) {
    entered = closures.from_starts(merged);
    empty_string = closures.add_empty_string(entered);
  }
  // Calls f(arc, distance before it) for the arcs of the new start node.
  const auto for_entered = [&](const auto& f) {
    for (int32_t k = entered.begin; k < entered.end; ++k)
      for (int32_t n = closures.node(k), slot = t.out().offset[n]; slot < t.out().offset[n + 1];
           ++slot)
        if (const int32_t a = t.out().arc(slot); actions[a] != kRemoved) f(a, k);
  };
  const Rerouting routes =
      reroute(t, start, merged.empty() ? 0 : 1, closures, for_entered, actions);

  // Of each arc of the result: the input arc, and the distances before and after it, or -1. Only
  // the arcs of the new start node have distances before them.
  Column kept, before, after;
  Arrays arrays;
  require_size(op, "arcs", routes.num_arcs);
  for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &kept, &after})
    column->resize(static_cast<size_t>(routes.num_arcs));
  if (!t.is_acceptor()) arrays.olabel.resize(static_cast<size_t>(routes.num_arcs));
  size_t size = 0;
  const auto add = [&](int32_t from, int32_t to, int32_t arc, int32_t distance) {
    arrays.src[size] = from;
    arrays.dst[size] = to;
    arrays.ilabel[size] = in[arc];
    if (!arrays.olabel.empty()) arrays.olabel[size] = out[arc];
    kept[size] = arc;
    after[size++] = distance;
  };
  InterruptPoll poll;
  const auto add_arc = [&](int32_t from, int32_t arc) {
    const Route& route = routes.route[dst[arc]];
    if (route.closure < 0) return add(from, route.id, arc, -1);
    const EpsilonClosure& closure = routes.closures[route.closure];
    poll(closure.end - closure.begin);
    for (int32_t k = closure.begin; k < closure.end; ++k)
      add(from, routes.route[closures.node(k)].id, arc, k);
  };
  arrays.num_nodes = routes.num_nodes;
  for_entered([&](int32_t a, int32_t distance) {
    add_arc(0, a);
    before.resize(size, distance);
  });
  for (size_t a = 0; a < actions.size(); ++a)
    if (actions[a] == kKept) add_arc(routes.route[src[a]].id, static_cast<int32_t>(a));
  if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();

  arrays.has_node_weights = t.has_node_weights() || empty_string >= 0;
  const auto add_end = [&](Column& nodes, int32_t node, int32_t weight, int32_t distance) {
    nodes.push_back(node);
    if (!arrays.has_node_weights) return;
    kept.push_back(weight);
    after.push_back(distance);
  };
  if (!merged.empty()) add_end(arrays.start, 0, -1, -1);
  for (int32_t n : start) add_end(arrays.start, routes.route[n].id, t.start_weight(n), -1);
  if (empty_string >= 0) add_end(arrays.accept, 0, -1, empty_string);
  for (int32_t n : t.accept())
    if (routes.is_entered[n]) add_end(arrays.accept, routes.route[n].id, t.accept_weight(n), -1);

  const Graph distances = std::move(closures).record();
  std::vector<Moved> moved{{graph, ArcMap::gather(std::move(kept))},
                           {distances, ArcMap::gather(std::move(after))}};
  if (!merged.empty()) moved.push_back({distances, ArcMap::gather(std::move(before))});
  const Graph removed = record_moves(op, std::move(arrays), std::move(moved));
  // Without cycles, the result of a graph without dead ends has none.
  return t.is_acyclic() && !has_dead_ends(t) ? removed : connect(removed);
}

Graph remove(const Graph& graph, int32_t ilabel, std::optional<int32_t> olabel, Semiring semiring) {
  return remove_as("remove", graph, ilabel, olabel, semiring);
}

}  // namespace arcgrad
