#include "arcgrad/algorithms/label_delay.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Synchronization (Mohri 2003, "Edit-distance of weighted automata: general definitions and
// algorithms") and a variant for input epsilons. A node of the result is a node of the graph with
// the pending labels of one side. An arc appends its labels, and writes the first pending label of
// each side as its rule says. A path that ends with pending labels writes them on a chain, which
// all nodes with the same pending labels share.
//
// The delay of an arc is its number of output labels minus that of its input labels. The result is
// finite if every cycle on an accepted path has the delay 0 (pairs), at most 0 (with input) or at
// least 0 (with output).

namespace arcgrad {
namespace {

using Labels = std::vector<int32_t>;
using Marks = Buffer<uint8_t>;  // of each node

/// A node of the result: a node of the graph and what is pending. An end node has `node` -1.
struct Delayed {
  int32_t node;
  int32_t pending;  // the number of the string
  Side side;
  auto operator<=>(const Delayed&) const = default;
};

class LabelDelay {
 public:
  LabelDelay(const char* op, const Graph& graph, const Marks& is_useful, DelayRule rule,
             int64_t max_nodes)
      : op_(op),
        graph_(graph),
        topology_(graph.topology()),
        is_useful_(is_useful),
        rule_(rule),
        max_nodes_(max_nodes) {
    string_id({});
    for (const int32_t n : topology_.start())
      if (is_useful[n]) arrays_.start.push_back(add({n, 0, Side::input}));
    std::ranges::sort(arrays_.start);
    for (int32_t i = 0; i < std::ssize(nodes_); ++i) expand(i);
  }

  Graph record() && {
    arrays_.num_nodes = static_cast<int32_t>(nodes_.size());
    if ((arrays_.has_node_weights = topology_.has_node_weights())) {
      for (const int32_t id : arrays_.start)
        arcs_.push_back(topology_.start_weight(nodes_[id].node));
      for (const int32_t id : arrays_.accept)
        arcs_.push_back(nodes_[id].node < 0 ? -1 : topology_.accept_weight(nodes_[id].node));
    }
    if (arrays_.ilabel == arrays_.olabel) arrays_.olabel.clear();
    return record_moves(op_, std::move(arrays_), {{graph_, ArcMap::gather(std::move(arcs_))}});
  }

 private:
  int32_t string_id(const Labels& labels) {
    const auto [at, is_new] = ids_.try_emplace(labels, static_cast<int32_t>(strings_.size()));
    if (is_new) strings_.push_back(&at->first);
    return at->second;
  }
  int32_t add(Delayed delayed) {
    if (delayed.pending == 0) delayed.side = Side::input;
    const auto [at, is_new] = found_.try_emplace(delayed, static_cast<int32_t>(nodes_.size()));
    if (is_new) {
      require(std::ssize(nodes_) < max_nodes_, op_,
              "the result may have at most max_nodes = ", max_nodes_,
              " nodes, but it has more; the graph has ", topology_.num_nodes());
      nodes_.push_back(delayed);
    }
    return at->second;
  }
  void add_arc(int32_t src, int32_t dst, int32_t ilabel, int32_t olabel, int32_t arc) {
    require_size(op_, "arcs", std::ssize(arcs_) + 1);
    arrays_.src.push_back(src);
    arrays_.dst.push_back(dst);
    arrays_.ilabel.push_back(ilabel);
    arrays_.olabel.push_back(olabel);
    arcs_.push_back(arc);
  }

  void expand(int32_t id) {
    const Delayed here = nodes_[id];
    const Labels pending = *strings_[here.pending];
    const bool is_end = here.node < 0;
    if (is_end || topology_.is_accept(here.node)) {
      if (pending.empty())
        arrays_.accept.push_back(id);
      else
        write_end(id, here, pending);
    }
    if (is_end) return;
    const Adjacency& out = topology_.out();
    for (int32_t k = out.offset[here.node]; k < out.offset[here.node + 1]; ++k) {
      if (!is_useful_[out.node[k]]) continue;
      const int32_t a = out.arc(k);
      Labels read[2];
      read[static_cast<size_t>(here.side)] = pending;
      const int32_t label[] = {topology_.ilabel()[a], topology_.olabel()[a]};
      for (size_t side = 0; side < 2; ++side)
        if (label[side] != kEpsilon) read[side].push_back(label[side]);
      int32_t written[] = {kEpsilon, kEpsilon};
      const bool writes = rule_ == DelayRule::pairs
                              ? !read[0].empty() && !read[1].empty()
                              : label[rule_ == DelayRule::with_output] != kEpsilon;
      for (size_t side = 0; side < 2 && writes; ++side)
        if (!read[side].empty()) {
          written[side] = read[side].front();
          read[side].erase(read[side].begin());
        }
      const Side side = read[0].empty() ? Side::output : Side::input;
      poll_(1 + std::ssize(pending));
      const Delayed next{out.node[k], string_id(read[static_cast<size_t>(side)]), side};
      add_arc(id, add(next), written[0], written[1], a);
    }
  }
  /// Adds the arc that writes the first pending label after the end of a path. The first one has
  /// the weight of ending there.
  void write_end(int32_t id, const Delayed& here, Labels pending) {
    const Side side = here.side;
    const int32_t label = pending.front();
    pending.erase(pending.begin());
    const int32_t next = add({-1, string_id(pending), side});
    add_arc(id, next, side == Side::input ? label : kEpsilon,
            side == Side::output ? label : kEpsilon,
            here.node < 0 ? -1 : topology_.accept_weight(here.node));
  }

  const char* op_;
  const Graph& graph_;
  const Topology& topology_;
  const Marks& is_useful_;
  DelayRule rule_;
  int64_t max_nodes_;
  std::map<Labels, int32_t> ids_;
  std::vector<const Labels*> strings_;
  std::map<Delayed, int32_t> found_;
  std::vector<Delayed> nodes_;
  InterruptPoll poll_;
  Arrays arrays_;
  Column arcs_;
};

/// The delay of an arc, see above.
int32_t delay(const Topology& t, int32_t arc) {
  return int32_t{t.olabel()[arc] != kEpsilon} - int32_t{t.ilabel()[arc] != kEpsilon};
}

/// The nodes of a cycle inside a strongly connected component whose delay times `sign` is positive,
/// or nothing (Bellman-Ford). `component` has the component of each node.
std::vector<int32_t> find_cycle(const Topology& t, std::span<const int32_t> nodes,
                                const Column& component, int32_t sign) {
  std::map<int32_t, std::pair<int64_t, int32_t>> best;  // the delay of a walk, and its last arc
  for (const int32_t n : nodes) best[n] = {0, -1};
  InterruptPoll poll;
  int32_t changed = -1;
  for (size_t round = 0; round <= nodes.size(); ++round) {
    changed = -1;
    for (const int32_t n : nodes)
      for (int32_t k = t.out().offset[n]; k < t.out().offset[n + 1]; ++k) {
        poll();
        const int32_t d = t.out().node[k];
        if (component[d] != component[n]) continue;
        const int64_t reached = best[n].first + sign * delay(t, t.out().arc(k));
        if (reached <= best[d].first) continue;
        best[d] = {reached, t.out().arc(k)};
        changed = d;
      }
    if (changed < 0) return {};
  }
  // Its last arcs lead back into a cycle.
  int32_t n = changed;
  for (size_t i = 0; i < nodes.size(); ++i) n = t.src()[best[n].second];
  std::vector<int32_t> cycle{n};
  for (int32_t m = t.src()[best[n].second]; m != n; m = t.src()[best[m].second]) cycle.push_back(m);
  std::ranges::reverse(cycle);
  return cycle;
}

/// Throws unless the delay is bounded.
void require_bounded(const char* op, const Topology& t, const Marks& is_useful, DelayRule rule) {
  const Order& order = t.order();
  Column component(static_cast<size_t>(t.num_nodes()), -1);
  for (size_t c = 0; c + 1 < order.component.size(); ++c)
    for (int32_t p = order.component[c]; p < order.component[c + 1]; ++p)
      component[order.node(p)] = static_cast<int32_t>(c);
  for (size_t c = 0; c + 1 < order.component.size(); ++c) {
    std::vector<int32_t> nodes;
    for (int32_t p = order.component[c]; p < order.component[c + 1]; ++p)
      if (is_useful[order.node(p)]) nodes.push_back(order.node(p));
    std::vector<int32_t> cycle;
    if (rule != DelayRule::with_output) cycle = find_cycle(t, nodes, component, 1);
    if (rule != DelayRule::with_input && cycle.empty()) cycle = find_cycle(t, nodes, component, -1);
    if (cycle.empty()) continue;
    std::string listed;
    for (const int32_t n : cycle) listed += text(n, " -> ");
    constexpr const char* kRules[] = {"a cycle must have as many input as output labels",
                                      "a cycle may have at most as many output as input labels",
                                      "a cycle may have at most as many input as output labels"};
    fail(op, kRules[static_cast<size_t>(rule)], ", so that delays are bounded, but the cycle ",
         listed, cycle.front(), " does not");
  }
}

}  // namespace

Graph delay_labels(const char* op, const Graph& graph, DelayRule rule, int64_t max_nodes) {
  const Topology& t = graph.topology();
  Marks is_useful(static_cast<size_t>(t.num_nodes()), 0);
  const auto all = [](int32_t) { return true; };
  mark_reachable(t.out(), t.start(), all, 1, is_useful);
  mark_reachable(t.in(), t.accept(), all, 2, is_useful);
  for (uint8_t& mark : is_useful) mark = mark == 3;
  if (!t.is_acyclic()) require_bounded(op, t, is_useful, rule);
  return LabelDelay(op, graph, is_useful, rule, max_nodes).record();
}

}  // namespace arcgrad
