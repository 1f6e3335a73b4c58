#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/distances.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/label_codes.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/partition.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/hash_index.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Weighted minimization (Mohri 2000, "Minimization algorithms for sequential transducers") of a
// deterministic graph, on pairs of labels. Two nodes may merge if the scores of their futures
// differ by a constant. That constant is found by pushing weights: with the potential d(n), the
// score of one path from node n to an end, an arc (s, t) is distinguished by its label and its
// pushed weight
//     weight + d(t) - d(s).
//
// The path is that of the first string: the shortest, then the one with the least labels. It is the
// same string for all nodes that may merge, exists also where sums over paths diverge, and needs no
// semiring. A node of the result keeps the arcs of one node of its class; with r(t) that node
// for the class of t, an arc to t has the weight
//     weight + d(t) - d(r(t)),
// so weights do not change where nothing is merged, and those of start and accept nodes never do.
//
// Potentials are path scores of the tree of first paths, which give the gradient. Cost: O(arcs)
// without cycles, else O(arcs * log(nodes)).

namespace arcgrad {
namespace {

constexpr char kOp[] = "minimize";

class Minimizer {
 public:
  explicit Minimizer(const Graph& graph)
      : graph_(graph),
        topology_(graph.topology()),
        weights_(graph.weights()),
        codes_(topology_),
        potential_(static_cast<size_t>(graph.num_nodes()), 0.0),
        first_arc_(potential_.size(), -1) {
    require_deterministic();
    find_useful();
    find_first_paths();
    number_symbols();
  }

  Graph run() {
    const Column classes =
        partition_by_future({.topology = topology_, .symbols = symbols_, .accepts = accepts_});
    // The representative of each class: the start node, or the least useful node.
    Column chosen(potential_.size(), -1), id(potential_.size(), -1);
    for (const int32_t n : topology_.start())
      if (is_useful(n)) chosen[classes[n]] = n;
    Arrays arrays;
    arrays.has_node_weights = topology_.has_node_weights();
    Column accept_weights;
    for (int32_t n = 0; n < topology_.num_nodes(); ++n) {
      if (!is_useful(n)) continue;
      int32_t& representative = chosen[classes[n]];
      if (representative < 0) representative = n;
      if (representative != n) continue;
      id[n] = arrays.num_nodes++;
      if (!accepts_[n]) continue;
      arrays.accept.push_back(id[n]);
      accept_weights.push_back(topology_.accept_weight(n));
    }
    Column kept, from, to;  // weights, and the nodes whose potentials are added and subtracted
    const auto src = topology_.src(), dst = topology_.dst();
    for (int32_t a = 0; a < topology_.num_arcs(); ++a) {
      if (symbols_[a] < 0 || id[src[a]] < 0) continue;
      const int32_t representative = chosen[classes[dst[a]]];
      arrays.src.push_back(id[src[a]]);
      arrays.dst.push_back(id[representative]);
      arrays.ilabel.push_back(topology_.ilabel()[a]);
      arrays.olabel.push_back(topology_.olabel()[a]);
      kept.push_back(a);
      const bool is_merged = representative != dst[a];
      from.push_back(is_merged ? dst[a] : -1);
      to.push_back(is_merged ? representative : -1);
    }
    if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();
    for (const int32_t n : topology_.start())
      if (is_useful(n)) {
        arrays.start.push_back(id[n]);
        kept.push_back(topology_.start_weight(n));
      }
    kept.insert(kept.end(), accept_weights.begin(), accept_weights.end());
    if (!arrays.has_node_weights) kept.resize(arrays.src.size());
    std::vector<Moved> moved{{graph_, ArcMap::gather(std::move(kept))}};
    const bool has_merged = std::ranges::any_of(from, [](int32_t n) { return n >= 0; });
    if (has_merged && (is_weighted_ || tracks(graph_))) {
      const Graph potentials = record_potentials();
      moved.push_back({potentials, ArcMap::gather(std::move(from))});
      moved.push_back({potentials, ArcMap::gather(std::move(to)), -1.0});
    }
    return record_cast(record_moves(kOp, std::move(arrays), std::move(moved)), graph_.dtype());
  }

 private:
  bool is_useful(int32_t node) const { return useful_[node] == 3; }
  /// Whether a weight is finite; index -1 stands for a node weight of a graph without them.
  bool is_possible(int32_t index) const { return index < 0 || weights_[index] > kNegInf; }

  void require_deterministic() const {
    const auto start = topology_.start();
    require(start.size() <= 1, kOp, "the graph must be deterministic, but it has start nodes ",
            start.size() > 1 ? start[0] : 0, " and ", start.size() > 1 ? start[1] : 0,
            "; determinize it first");
    const Adjacency& out = topology_.out();
    Buffer<uint32_t> codes;
    InterruptPoll poll;
    for (int32_t n = 0; n < topology_.num_nodes(); ++n) {
      codes.clear();
      for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k)
        codes.push_back(codes_[out.arc(k)]);
      poll(1 + std::ssize(codes));
      if (!std::ranges::is_sorted(codes)) std::ranges::sort(codes);
      const auto twice = std::ranges::adjacent_find(codes);
      if (twice == codes.end()) continue;
      const int32_t ilabel = codes_.ilabel(*twice), olabel = codes_.olabel(*twice);
      fail(kOp, "the graph must be deterministic, but node ", n, " has two arcs with label ",
           ilabel == olabel ? text(ilabel) : text(ilabel, ":", olabel), "; determinize it first");
    }
  }
  /// Sets accepts_ and useful_. An impossible arc or end counts as missing.
  void find_useful() {
    const Adjacency &out = topology_.out(), &in = topology_.in();
    accepts_.assign(potential_.size(), 0);
    useful_.assign(potential_.size(), 0);
    Column start, accept;
    for (const int32_t n : topology_.start())
      if (is_possible(topology_.start_weight(n))) start.push_back(n);
    for (const int32_t n : topology_.accept())
      if (is_possible(topology_.accept_weight(n))) {
        accept.push_back(n);
        accepts_[n] = 1;
      }
    mark_reachable(out, start, [&](int32_t k) { return is_possible(out.arc(k)); }, 1, useful_);
    mark_reachable(in, accept, [&](int32_t k) { return is_possible(in.arc(k)); }, 2, useful_);
  }
  /// Breadth first from the accept nodes, against the arcs: sets first_arc_ and potential_.
  void find_first_paths() {
    const Adjacency& in = topology_.in();
    const auto dst = topology_.dst();
    Column length(potential_.size(), -1);
    for (const int32_t n : topology_.accept()) {
      if (!is_useful(n) || !accepts_[n]) continue;
      order_.push_back(n);
      length[n] = 0;
      if (const int32_t end = topology_.accept_weight(n); end >= 0) potential_[n] = weights_[end];
      is_weighted_ |= potential_[n] != 0.0;
    }
    InterruptPoll poll;
    for (size_t i = 0; i < order_.size(); ++i) {
      const int32_t n = order_[i];
      if (const int32_t a = first_arc_[n]; a >= 0) potential_[n] = weights_[a] + potential_[dst[a]];
      poll(1 + in.offset[n + 1] - in.offset[n]);
      for (int32_t k = in.offset[n]; k < in.offset[n + 1]; ++k) {
        const int32_t s = in.node[k], a = in.arc(k);
        if (!is_useful(s) || !is_possible(a)) continue;
        if (length[s] < 0) {
          length[s] = length[n] + 1;
          order_.push_back(s);
        } else if (length[s] != length[n] + 1 || codes_[a] > codes_[first_arc_[s]]) {
          continue;
        }
        first_arc_[s] = a;
      }
    }
  }
  /// Sets symbols_: arcs with equal labels and pushed weights have equal symbols. Arcs that are not
  /// on a possible path have -1.
  void number_symbols() {
    // Weights that differ by rounding errors only are the same.
    const double levels = std::ldexp(1.0, graph_.dtype() == DType::float32 ? 20 : 36);
    const auto src = topology_.src(), dst = topology_.dst();
    struct Symbol {
      uint32_t code;
      double level;
      bool operator==(const Symbol&) const = default;
    };
    Buffer<Symbol> known;
    HashIndex index;
    symbols_.assign(static_cast<size_t>(topology_.num_arcs()), -1);
    InterruptPoll poll;
    for (int32_t a = 0; a < topology_.num_arcs(); ++a) {
      poll();
      if (!is_useful(src[a]) || !is_useful(dst[a]) || !is_possible(a)) continue;
      const double pushed = weights_[a] + potential_[dst[a]] - potential_[src[a]];
      is_weighted_ |= weights_[a] != 0.0 || std::signbit(weights_[a]);
      const Symbol symbol{codes_[a], std::nearbyint(pushed * levels) + 0.0};
      const auto hash = static_cast<uint32_t>(
          mix_hash(mix_hash(symbol.code, 0), std::bit_cast<uint64_t>(symbol.level)) >> 32);
      int32_t id = index.find(hash, [&](int32_t i) { return known[i] == symbol; });
      if (id < 0) {
        id = static_cast<int32_t>(known.size());
        known.push_back(symbol);
        index.add(hash, id);
      }
      symbols_[a] = id;
    }
  }
  /// The potentials of all nodes as an op of the graph.
  Graph record_potentials() const {
    // The last node stands for the ends of paths.
    Arrays tree;
    const int32_t end = tree.num_nodes = topology_.num_nodes();
    ++tree.num_nodes;
    Column arcs;
    const auto add = [&](int32_t src, int32_t dst, int32_t weight) {
      tree.src.push_back(src);
      tree.dst.push_back(dst);
      arcs.push_back(weight);
    };
    for (int32_t n = 0; n < end; ++n)
      if (const int32_t a = first_arc_[n]; a >= 0)
        add(n, topology_.dst()[a], a);
      else if (accepts_[n])
        add(n, end, topology_.accept_weight(n));
    tree.ilabel.assign(arcs.size(), kEpsilon);
    Weights weights = Weights::zeros(std::ssize(arcs), DType::float64);
    ArcMap::gather(arcs).apply(weights_, weights, 1.0);
    Column nodes(potential_.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    PathScores scores(std::make_shared<Topology>(std::move(tree)), weights, {&end, 1},
                      {.op = kOp,
                       .direction = Direction::reverse,
                       .semiring = Semiring::tropical,
                       .keep = tracks(graph_)});
    return record_distances(kOp, graph_, {std::move(scores), std::move(arcs), std::move(nodes)},
                            DType::float64);
  }

  const Graph& graph_;
  const Topology& topology_;
  const Weights weights_;
  const LabelCodes codes_;
  Buffer<double> potential_;
  Column first_arc_;  // of the path of each node, or -1
  Column order_;      // the useful nodes by the lengths of their first strings
  Buffer<uint8_t> useful_, accepts_;
  Column symbols_;
  bool is_weighted_ = false;
};

}  // namespace

Graph minimize(const Graph& graph) {
  require_no_failures(kOp, graph.topology());
  require_scorable(kOp, graph.topology(), graph.weights());
  return Minimizer(graph).run();
}

}  // namespace arcgrad
