#include "arcgrad/algorithms/label_push.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Label pushing (Mohri 2000; Choffrut 2003, "Minimizing subsequential transducers: a survey"). The
// potential P(n) is the longest common beginning of the outputs of all paths from node n to an end.
// An arc (s, t) with output o gets the output o P(t) without the beginning P(s), which may have any
// number of labels; a start node s is preceded by a chain that writes P(s).
//
// P(n) is a list whose end is shared with other nodes. It starts as the output of a shortest path
// and is shortened until P(n) is a beginning of o P(t) for all arcs of n.

namespace arcgrad {
namespace {

/// Lists of labels with common ends. List 0 is empty.
class Lists {
 public:
  Lists() { links_.push_back({kEpsilon, 0, 0}); }

  int32_t prepend(int32_t label, int32_t list) {
    if (label == kEpsilon) return list;
    links_.push_back({label, list, links_[list].length + 1});
    require_size("push", "labels", links_.size());
    return static_cast<int32_t>(links_.size()) - 1;
  }
  int32_t length(int32_t list) const { return links_[list].length; }
  int32_t label(int32_t list) const { return links_[list].label; }
  int32_t rest(int32_t list) const { return links_[list].rest; }
  int32_t drop(int32_t list, int32_t count) const {
    for (; count > 0; --count) list = rest(list);
    return list;
  }
  /// The longest common beginning.
  int32_t common(int32_t a, int32_t b) {
    std::vector<int32_t> labels;
    int32_t x = a, y = b;
    while (x != y && x != 0 && y != 0 && label(x) == label(y)) {
      labels.push_back(label(x));
      x = rest(x);
      y = rest(y);
    }
    if (x == y || x == 0) return a;
    if (y == 0) return b;
    int32_t out = 0;
    for (size_t i = labels.size(); i-- > 0;) out = prepend(labels[i], out);
    return out;
  }

 private:
  struct ListNode {
    int32_t label, rest, length;
  };
  PodVector<ListNode> links_;
};

class LabelPush {
 public:
  LabelPush(const char* op, const Graph& graph)
      : op_(op),
        graph_(graph),
        topology_(graph.topology()),
        olabel_(topology_.olabel()),
        potential_(static_cast<size_t>(topology_.num_nodes()), -1) {
    start_potentials();
    shorten();
  }

  Graph record() && {
    const auto src = topology_.src(), dst = topology_.dst(), ilabel = topology_.ilabel();
    arrays_.num_nodes = topology_.num_nodes();
    arrays_.accept.assign(topology_.accept().begin(), topology_.accept().end());
    arrays_.has_node_weights = topology_.has_node_weights();
    InterruptPoll poll;
    for (const int32_t n : topology_.start()) {
      int32_t first = n;
      if (const int32_t labels = potential_[n]; labels != 0) {
        first = arrays_.num_nodes++;
        write(first, n, kEpsilon, labels, -1);
      }
      arrays_.start.push_back(first);
      starts_.push_back({first, n});
    }
    for (int32_t a = 0; a < topology_.num_arcs(); ++a) {
      const int32_t length = lists_.length(potential_[src[a]]);
      poll(1 + length);
      // The output of the arc is the first label before the potential of its destination.
      const int32_t all = lists_.prepend(olabel_[a], potential_[dst[a]]);
      write(src[a], dst[a], ilabel[a], lists_.drop(all, length), a);
    }
    std::ranges::sort(arrays_.start);
    std::ranges::sort(starts_);
    if (topology_.has_node_weights()) {
      for (const auto& [first, n] : starts_) arcs_.push_back(topology_.start_weight(n));
      for (const int32_t n : topology_.accept()) arcs_.push_back(topology_.accept_weight(n));
    }
    if (arrays_.ilabel == arrays_.olabel) arrays_.olabel.clear();
    return record_moves(op_, std::move(arrays_), {{graph_, ArcMap::gather(std::move(arcs_))}});
  }

 private:
  /// The outputs of shortest paths, by breadth-first search from the accept nodes.
  void start_potentials() {
    const Adjacency& in = topology_.in();
    Column open(topology_.accept().begin(), topology_.accept().end());
    for (const int32_t n : open) potential_[n] = 0;
    InterruptPoll poll;
    for (size_t i = 0; i < open.size(); ++i)
      for (int32_t k = in.offset[open[i]]; k < in.offset[open[i] + 1]; ++k) {
        poll();
        if (potential_[in.node[k]] >= 0) continue;
        potential_[in.node[k]] = lists_.prepend(olabel_[in.arc(k)], potential_[open[i]]);
        open.push_back(in.node[k]);
      }
  }
  /// Shortens the potentials, component by component against the arcs.
  void shorten() {
    const Order& order = topology_.order();
    int32_t end = topology_.num_nodes();
    for (size_t c = order.component.size(); end > 0;) {
      int32_t begin = end - 1;
      if (!order.is_acyclic()) begin = order.component[--c - 1];
      bool is_final = false;
      while (!is_final) {
        is_final = true;
        for (int32_t p = end - 1; p >= begin; --p) is_final &= !shorten(order.node(p));
        is_final |= end - begin == 1 && order.is_acyclic();
      }
      end = begin;
    }
  }
  /// Returns whether the potential of the node has changed.
  bool shorten(int32_t node) {
    const Adjacency& out = topology_.out();
    int32_t common = topology_.is_accept(node) ? 0 : potential_[node];
    for (int32_t k = out.offset[node]; k < out.offset[node + 1] && common != 0; ++k) {
      common = lists_.common(common, lists_.prepend(olabel_[out.arc(k)], potential_[out.node[k]]));
      poll_(1 + lists_.length(common));
    }
    return lists_.length(std::exchange(potential_[node], common)) != lists_.length(common);
  }
  /// Adds arcs that read a label and write a list of labels.
  void write(int32_t from, int32_t to, int32_t ilabel, int32_t labels, int32_t arc) {
    do {
      const int32_t rest = labels == 0 ? 0 : lists_.rest(labels);
      const int32_t next = rest == 0 ? to : arrays_.num_nodes++;
      require_size(op_, "arcs", std::ssize(arcs_) + 1);
      arrays_.src.push_back(from);
      arrays_.dst.push_back(next);
      arrays_.ilabel.push_back(std::exchange(ilabel, kEpsilon));
      arrays_.olabel.push_back(labels == 0 ? kEpsilon : lists_.label(labels));
      arcs_.push_back(std::exchange(arc, -1));
      from = next;
      labels = rest;
    } while (labels != 0);
  }

  const char* op_;
  const Graph& graph_;
  const Topology& topology_;
  std::span<const int32_t> olabel_;
  Lists lists_;
  Column potential_;  // of each node, a list
  InterruptPoll poll_;
  Arrays arrays_;
  Column arcs_;
  std::vector<std::pair<int32_t, int32_t>> starts_;  // new and old start nodes
};

}  // namespace

Graph push_labels(const char* op, const Graph& graph) { return LabelPush(op, graph).record(); }

}  // namespace arcgrad
