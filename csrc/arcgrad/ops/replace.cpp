#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "arcgrad/algorithms/disjoint_union.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/memory_limit.h"

// A recursive transition network (Mohri 2002, "Weighted finite-state transducers in speech
// recognition"; `replace` of OpenFst): an arc with the label of a graph is a call, replaced by a
// copy of that graph between two sets of epsilon arcs. The first has the weight of the call.
//
// Copies are made breadth first. All graphs are first joined into one, on the tape too, so that one
// arc map finds the weights of all copies.

namespace arcgrad {
namespace {

constexpr char kOp[] = "replace";
/// The root among the graphs.
constexpr size_t kRoot = 0;

class Network {
 public:
  Network(const Graph& root, std::span<const Replacement> replacements) {
    graphs_.push_back(root);
    for (const Replacement& r : replacements) {
      require(r.label >= 0, kOp, "the labels of graphs must be 0 or more, but one is ", r.label);
      const bool is_new = index_.try_emplace(r.label, graphs_.size()).second;
      require(is_new, kOp, "each label must have one graph, but ", r.label, " has several");
      graphs_.push_back(r.graph);
    }
    find_calls();
  }

  /// The result. Throws if it has more than `max_arcs` arcs.
  Graph expand(std::optional<int64_t> max_arcs) {
    check_size(max_arcs);
    DisjointUnion joined(kOp, graphs_);
    for (size_t g = 0; g < graphs_.size(); ++g) {
      joined.add_starts(g);
      joined.add_accepts(g);
      first_node_.push_back(joined.node(g, 0));
      first_arc_.push_back(g == kRoot ? 0 : first_arc_.back() + graphs_[g - 1].num_arcs());
    }
    all_ = std::move(joined).record();
    copies_.push_back({kRoot, -1, -1, -1});
    for (size_t k = 0; k < copies_.size(); ++k) add_copy(copies_[k]);
    if (arrays_.ilabel == arrays_.olabel) arrays_.olabel.clear();
    arrays_.has_node_weights = graphs_[kRoot].has_node_weights();
    if (arrays_.has_node_weights) {
      for (const int32_t n : arrays_.start) arcs_.push_back(start_weight(kRoot, n));
      for (const int32_t n : arrays_.accept) arcs_.push_back(accept_weight(kRoot, n));
    }
    std::vector<Moved> moved{{all_, ArcMap::gather(std::move(arcs_))}};
    if (all_.has_node_weights()) moved.push_back({all_, ArcMap::gather(std::move(starts_))});
    return record_moves(kOp, std::move(arrays_), std::move(moved));
  }

 private:
  /// A copy of a graph for the call `arc` of `all_` from `src` to `dst`.
  struct Copy {
    size_t graph;
    int32_t src, dst, arc;
  };

  const Topology& topology(size_t g) const { return graphs_[g].topology(); }
  /// Of a node of a graph, the index of its weight among those of `all_`; -1 without node weights.
  int32_t start_weight(size_t g, int32_t node) const {
    return all_.topology().start_weight(first_node_[g] + node);
  }
  int32_t accept_weight(size_t g, int32_t node) const {
    return all_.topology().accept_weight(first_node_[g] + node);
  }

  /// The graph that an arc calls; kRoot if it is an ordinary arc.
  size_t called(const Topology& t, int32_t a) const {
    const auto found = index_.find(t.ilabel()[a]);
    const auto other = index_.find(t.olabel()[a]);
    if (found == index_.end() && other == index_.end()) return kRoot;
    require(t.ilabel()[a] == t.olabel()[a], kOp,
            "an arc with the label of a graph must have it on both sides, but arc ", a,
            " has labels ", t.ilabel()[a], ":", t.olabel()[a]);
    return found->second;
  }

  void find_calls() {
    InterruptPoll poll;
    calls_.resize(graphs_.size());
    for (size_t g = 0; g < graphs_.size(); ++g) {
      const Topology& t = topology(g);
      for (int32_t a = 0; a < t.num_arcs(); ++a) {
        poll();
        if (const size_t to = called(t, a); to != kRoot) calls_[g].push_back(to);
      }
    }
  }

  /// Counts the nodes and arcs of the result before it is built.
  void check_size(std::optional<int64_t> max_arcs) {
    // Counts stop here, so that sums do not overflow.
    constexpr int64_t kMany = int64_t{1} << 40;
    struct Count {
      int64_t nodes = 0, arcs = 0;
    };
    enum class Visited : uint8_t { unseen, open, done };
    std::vector<Count> count(graphs_.size());
    std::vector<Visited> state(graphs_.size(), Visited::unseen);
    std::vector<size_t> stack{kRoot};
    InterruptPoll poll;
    while (!stack.empty()) {
      const size_t g = stack.back();
      if (state[g] == Visited::unseen) {
        state[g] = Visited::open;
        for (const size_t to : calls_[g]) {
          if (state[to] == Visited::open) fail_recursion(to);
          if (state[to] == Visited::unseen) stack.push_back(to);
        }
        continue;
      }
      stack.pop_back();
      if (state[g] == Visited::done) continue;
      state[g] = Visited::done;
      Count& c = count[g];
      c = {topology(g).num_nodes(), topology(g).num_arcs()};
      for (const size_t to : calls_[g]) {
        poll();
        const auto ends = std::ssize(topology(to).start()) + std::ssize(topology(to).accept());
        c.nodes = std::min(kMany, c.nodes + count[to].nodes);
        c.arcs = std::min(kMany, c.arcs + count[to].arcs + ends - 1);
      }
    }
    const auto [nodes, arcs] = count[kRoot];
    // Bytes per arc: five columns, the weight, and a copy of each while vectors grow.
    constexpr int64_t kBytes = 56;
    const int64_t most = max_arcs.value_or(machine_memory() / 2 / kBytes);
    require(std::max(nodes, arcs) <= most, kOp, "the result may have at most max_arcs = ", most,
            " nodes and arcs, but it has ", nodes >= kMany || arcs >= kMany ? "more than " : "",
            nodes, " nodes and ", arcs, " arcs");
    require_size(kOp, "nodes", nodes);
    require_size(kOp, "arcs", arcs);
  }

  [[noreturn]] void fail_recursion(size_t graph) const {
    for (const auto& [label, index] : index_)
      if (index == graph)
        fail(kOp, "a graph must not contain itself, but the graph of label ", label,
             " does, directly or through other graphs");
    std::abort();  // only labels are called
  }

  void add_copy(const Copy copy) {
    const Topology& t = topology(copy.graph);
    const int32_t first = arrays_.num_nodes;
    arrays_.num_nodes += t.num_nodes();
    if (copy.arc < 0) {
      arrays_.start.assign(t.start().begin(), t.start().end());
      arrays_.accept.assign(t.accept().begin(), t.accept().end());
    } else {
      for (const int32_t n : t.start())
        add_arc(copy.src, first + n, kEpsilon, kEpsilon, copy.arc, start_weight(copy.graph, n));
    }
    for (int32_t a = 0; a < t.num_arcs(); ++a) {
      const int32_t src = first + t.src()[a], dst = first + t.dst()[a];
      const int32_t arc = first_arc_[copy.graph] + a;
      if (const size_t to = called(t, a); to != kRoot)
        copies_.push_back({to, src, dst, arc});
      else
        add_arc(src, dst, t.ilabel()[a], t.olabel()[a], arc);
    }
    if (copy.arc >= 0)
      for (const int32_t n : t.accept())
        add_arc(first + n, copy.dst, kEpsilon, kEpsilon, accept_weight(copy.graph, n));
  }

  void add_arc(int32_t src, int32_t dst, int32_t ilabel, int32_t olabel, int32_t arc,
               int32_t start = -1) {
    poll_();
    arrays_.src.push_back(src);
    arrays_.dst.push_back(dst);
    arrays_.ilabel.push_back(ilabel);
    arrays_.olabel.push_back(olabel);
    arcs_.push_back(arc);
    starts_.push_back(start);
  }

  std::vector<Graph> graphs_;
  std::unordered_map<int32_t, size_t> index_;  // of the graphs, by label
  std::vector<std::vector<size_t>> calls_;     // of each graph
  std::vector<Copy> copies_;
  Graph all_{nullptr};                           // the disjoint union
  std::vector<int32_t> first_node_, first_arc_;  // of each graph in it
  Arrays arrays_;
  // The weights of `all_` that the weight of each arc is made of, or -1: one of an arc or an accept
  // node, and one of a start node.
  Column arcs_, starts_;
  InterruptPoll poll_;
};

}  // namespace

Graph replace(const Graph& root, std::span<const Replacement> replacements,
              std::optional<int64_t> max_arcs) {
  require_no_failures(kOp, root.topology());
  for (const Replacement& r : replacements) require_no_failures(kOp, r.graph.topology());
  return Network(root, replacements).expand(max_arcs);
}

}  // namespace arcgrad
