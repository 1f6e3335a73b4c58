#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "arcgrad/algorithms/distances.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Weighted determinization (Mohri 1997, "Finite-state transducers in language and speech
// processing"; Mohri 2009, section 6.2), on pairs of labels, after epsilon removal.
//
// A node of the result is a subset: the nodes that the paths of a string reach, each with its
// residual, the score of these paths minus the score of all paths of the string. Strings with the
// same nodes and residuals lead to the same subset. With u(S, q) the score of the paths to q,
//     u(T, d) = sum over q in S and arcs (q, d) with the label of u(S, q) * weight
//     weight of the arc (S, T) = sum over d of u(T, d), divided by the sum over q of u(S, q).
// The scores u are path scores in a forest: a copy of each node per subset, connected along the
// string that led to the subset first. A subset of one node begins a new tree, since its residual
// is always one. So one PathScores computes all weights, and first and second order follow.
//
// Invariant: the residuals of a subset sum to one, except those of the start nodes, which are one.
// Cost: O(arcs of the subsets, sorted); the result may be exponentially larger than the graph.

namespace arcgrad {
namespace {

constexpr char kOp[] = "determinize";

/// A node of a subset.
struct Element {
  int32_t node;
  int32_t copy;  // its copy in the forest
  double level;  // its residual, rounded so that equal residuals are found
  double residual;
};

/// The paths that lead to the copies of nodes, see above.
struct Forest {
  int32_t num_nodes = 0;
  Column src, dst, arcs;  // for each arc: copies, and the arc of the graph, or -1 for weight one
  Column sources, targets;

  int32_t add_source() {
    sources.push_back(num_nodes);
    return num_nodes++;
  }
  void add_arc(int32_t from, int32_t to, int32_t arc) {
    src.push_back(from);
    dst.push_back(to);
    arcs.push_back(arc);
  }
  /// The index of a new output, the score of a copy.
  int32_t add_target(int32_t copy) {
    targets.push_back(copy);
    return static_cast<int32_t>(targets.size()) - 1;
  }
  /// The scores of all targets as a recorded op of the graph.
  Graph record(const Graph& graph, Semiring semiring) && {
    Arrays arrays;
    arrays.num_nodes = num_nodes;
    arrays.src = std::move(src);
    arrays.dst = std::move(dst);
    arrays.ilabel.assign(arcs.size(), kEpsilon);
    Weights weights = Weights::zeros(static_cast<int64_t>(arcs.size()), DType::float64);
    ArcMap::gather(arcs).apply(graph.weights(), weights, 1.0);
    PathScores scores(std::make_shared<Topology>(std::move(arrays)), weights, sources,
                      {.op = kOp,
                       .semiring = semiring,
                       .keep = tracks(graph),
                       .targets = targets,
                       .exact_sums = true});
    return record_distances(kOp, graph, {std::move(scores), std::move(arcs), std::move(targets)},
                            DType::float64);
  }
};

class Determinizer {
 public:
  Determinizer(const Graph& graph, Semiring semiring, int64_t max_nodes)
      : graph_(graph),
        topology_(graph.topology()),
        semiring_(semiring),
        max_nodes_(max_nodes),
        // Residuals that differ by rounding errors only are the same.
        levels_(graph.dtype() == DType::float32 ? std::ldexp(1.0, 20) : std::ldexp(1.0, 36)) {
    add_start();
    for (int32_t s = 0; s < num_subsets(); ++s) expand(s);
  }

  Graph record() && {
    arrays_.num_nodes = num_subsets();
    if (arrays_.num_nodes > 0) arrays_.start = {0};
    if (has_weighted_end_) {
      // Strings that end with a weight end at the last node, whose id is known only now.
      const int32_t last = arrays_.num_nodes++;
      for (int32_t& n : arrays_.dst) n = n < 0 ? last : n;
      arrays_.accept.push_back(last);
    }
    if (arrays_.ilabel == arrays_.olabel) arrays_.olabel.clear();
    std::vector<Moved> moved{{graph_, ArcMap::gather(std::move(direct_))}};
    if (!forest_.targets.empty()) {
      const Graph scores = std::move(forest_).record(graph_, semiring_);
      moved.push_back({scores, ArcMap::gather(std::move(plus_))});
      moved.push_back({scores, ArcMap::gather(std::move(minus_)), -1.0});
    }
    const Graph out =
        record_cast(record_moves(kOp, std::move(arrays_), std::move(moved)), graph_.dtype());
    return has_impossible_ ? connect(out) : out;
  }

 private:
  using Key = uint64_t;  // a pair of labels; 0: both are epsilon

  /// An arc that leaves an element of a subset.
  struct ElementArc {
    Key key;
    int32_t dst, arc, copy;
    double score;
  };
  /// A node of the next subset, and the arcs [begin, end) that lead to it.
  struct Member {
    int32_t node;
    size_t begin, end;
    double score;
  };

  int32_t num_subsets() const { return static_cast<int32_t>(first_.size()) - 1; }
  std::span<const Element> elements(int32_t subset) const {
    return std::span(elements_).subspan(first_[subset], first_[subset + 1] - first_[subset]);
  }
  double sum(double a, double b) const {
    return semiring_ == Semiring::log ? logadd(a, b) : std::max(a, b);
  }

  void add_start() {
    for (const int32_t n : topology_.start())
      elements_.push_back({n, forest_.add_source(), 0, 0.0});
    if (!elements_.empty()) add_subset(-1, -1);
  }

  /// Adds the elements at the end as a subset. `total` is the target that is their sum, or -1.
  int32_t add_subset(int32_t parent, int32_t total) {
    if (num_subsets() + (has_weighted_end_ ? 1 : 0) >= max_nodes_) fail_size(parent);
    first_.push_back(elements_.size());
    total_.push_back(total);
    parent_.push_back(parent);
    const int32_t subset = num_subsets() - 1;
    found_.emplace(hash(elements(subset)), subset);
    return subset;
  }

  static uint64_t hash(std::span<const Element> elements) {
    uint64_t out = elements.size();
    for (const Element& e : elements)
      for (const uint64_t part : {static_cast<uint64_t>(e.node), std::bit_cast<uint64_t>(e.level)})
        out = (out ^ part) * 0x9e3779b97f4a7c15u + (out >> 29);
    return out;
  }
  /// The subset with the nodes and residuals of the elements from `begin` on, or -1.
  int32_t find_subset(size_t begin) const {
    const auto wanted = std::span(elements_).subspan(begin);
    const auto [from, to] = found_.equal_range(hash(wanted));
    for (auto it = from; it != to; ++it)
      if (std::ranges::equal(elements(it->second), wanted, [](const Element& a, const Element& b) {
            return a.node == b.node && a.level == b.level;
          }))
        return it->second;
    return -1;
  }

  void expand(int32_t subset) {
    const Adjacency& out = topology_.out();
    const auto ilabel = topology_.ilabel(), olabel = topology_.olabel();
    arcs_out_.clear();
    bool all_accept = true, any_accept = false;
    for (const Element& e : elements(subset)) {
      const bool accepts = topology_.is_accept(e.node);
      all_accept &= accepts;
      any_accept |= accepts;
      for (int32_t k = out.offset[e.node]; k < out.offset[e.node + 1]; ++k) {
        const int32_t a = out.arc(k);
        const double weight = graph_.weight(a);
        if (weight == kNegInf) {
          has_impossible_ = true;
          continue;
        }
        const Key key = static_cast<Key>(ilabel[a] + 1) << 32 | static_cast<Key>(olabel[a] + 1);
        arcs_out_.push_back({key, out.node[k], a, e.copy, e.residual + weight});
      }
    }
    poll_(1 + std::ssize(arcs_out_));
    std::ranges::stable_sort(arcs_out_, {},
                             [](const ElementArc& s) { return std::pair(s.key, s.dst); });
    size_t next = 0;
    while (next < arcs_out_.size() && arcs_out_[next].key == 0) ++next;
    end(subset, next, all_accept, any_accept);
    while (next < arcs_out_.size()) {
      const size_t begin = next;
      while (next < arcs_out_.size() && arcs_out_[next].key == arcs_out_[begin].key) ++next;
      advance(subset, begin, next);
    }
  }

  /// Lets paths end in a subset. After epsilon removal, the first `num_epsilon` of them are
  /// epsilon arcs to accept nodes that no arc leaves.
  void end(int32_t subset, size_t num_epsilon, bool all_accept, bool any_accept) {
    if (!any_accept && num_epsilon == 0) return;
    const auto here = elements(subset);
    const bool is_one = here.size() == 1;
    if (all_accept && num_epsilon == 0 && (is_one || total_[subset] >= 0)) {
      arrays_.accept.push_back(subset);
      return;
    }
    if (!has_weighted_end_ && num_subsets() >= max_nodes_) fail_size(-1);
    has_weighted_end_ = true;
    if (is_one && !any_accept && num_epsilon == 1)
      return add_arc(subset, -1, 0, arcs_out_[0].arc, -1);
    const int32_t sum = forest_.num_nodes++;
    for (const Element& e : here)
      if (topology_.is_accept(e.node)) forest_.add_arc(e.copy, sum, -1);
    for (size_t i = 0; i < num_epsilon; ++i)
      forest_.add_arc(arcs_out_[i].copy, sum, arcs_out_[i].arc);
    add_arc(subset, -1, 0, -1, forest_.add_target(sum));
  }

  /// Adds the arc for the arcs [begin, end), which have one label.
  void advance(int32_t subset, size_t begin, size_t end) {
    members_.clear();
    double total = kNegInf;
    for (size_t i = begin; i < end; ++i) {
      if (members_.empty() || members_.back().node != arcs_out_[i].dst)
        members_.push_back({arcs_out_[i].dst, i, i, kNegInf});
      members_.back().end = i + 1;
      members_.back().score = sum(members_.back().score, arcs_out_[i].score);
      total = sum(total, arcs_out_[i].score);
    }
    const size_t first = elements_.size();
    for (const Member& m : members_) {
      const double residual = members_.size() == 1 ? 0.0 : m.score - total;
      elements_.push_back({m.node, -1, std::nearbyint(residual * levels_) + 0.0, residual});
    }
    int32_t to = find_subset(first);
    int32_t score = -1;
    const auto add_sum = [&] {
      const int32_t copy = forest_.num_nodes++;
      for (size_t i = begin; i < end; ++i)
        forest_.add_arc(arcs_out_[i].copy, copy, arcs_out_[i].arc);
      return forest_.add_target(copy);
    };
    const bool is_direct = end - begin == 1 && elements(subset).size() == 1;
    if (to >= 0) {
      elements_.resize(first);
    } else if (members_.size() == 1) {
      elements_.back().copy = forest_.add_source();
      to = add_subset(subset, -1);
    } else {
      const int32_t copy = forest_.num_nodes++;
      for (size_t m = 0; m < members_.size(); ++m) {
        const int32_t here = elements_[first + m].copy = forest_.num_nodes++;
        for (size_t i = members_[m].begin; i < members_[m].end; ++i)
          forest_.add_arc(arcs_out_[i].copy, here, arcs_out_[i].arc);
        forest_.add_arc(here, copy, -1);
      }
      score = forest_.add_target(copy);
      to = add_subset(subset, score);
    }
    if (is_direct) return add_arc(subset, to, arcs_out_[begin].key, arcs_out_[begin].arc, -1);
    add_arc(subset, to, arcs_out_[begin].key, -1, score >= 0 ? score : add_sum());
  }

  /// Adds an arc with the weight of an arc of the graph, or with a score of the forest divided by
  /// that of the subset.
  void add_arc(int32_t src, int32_t dst, Key key, int32_t direct, int32_t score) {
    require_size(kOp, "arcs", static_cast<int64_t>(arrays_.src.size()) + 1);
    arrays_.src.push_back(src);
    arrays_.dst.push_back(dst);
    arrays_.ilabel.push_back(static_cast<int32_t>(key >> 32) - 1);
    arrays_.olabel.push_back(static_cast<int32_t>(key & 0xffffffffu) - 1);
    direct_.push_back(direct);
    plus_.push_back(score);
    minus_.push_back(direct >= 0 ? -1 : total_[src]);
  }

  /// Explains why there are more than max_nodes subsets. If the new one, which follows `parent`,
  /// has the nodes of an earlier one, a string leads back to them, and has changed their residuals.
  [[noreturn]] void fail_size(int32_t parent) const {
    const auto last = std::span(elements_).subspan(first_.back());
    for (int32_t s = parent; s >= 0; s = parent_[s]) {
      const auto before = elements(s);
      if (!std::ranges::equal(before, last, {}, &Element::node, &Element::node)) continue;
      for (size_t i = 1; i < last.size(); ++i)
        if (last[i].level - last[0].level != before[i].level - before[0].level)
          fail(kOp, "the scores of nodes ", last[0].node, " and ", last[i].node,
               " must differ by the same amount whenever a string returns to both (twins "
               "property), but they differ by ",
               before[0].residual - before[i].residual, " and later by ",
               last[0].residual - last[i].residual, "; found after max_nodes = ", max_nodes_,
               " nodes");
    }
    fail(kOp, "the result may have at most max_nodes = ", max_nodes_,
         " nodes, but it has more; the graph has ", topology_.num_nodes());
  }

  const Graph& graph_;
  const Topology& topology_;
  Semiring semiring_;
  int64_t max_nodes_;
  double levels_;

  // Subsets: their elements, and per subset the target that is its total, and its parent.
  std::vector<Element> elements_;
  std::vector<size_t> first_{0};
  Column total_, parent_;
  std::unordered_multimap<uint64_t, int32_t> found_;
  Forest forest_;
  InterruptPoll poll_;
  bool has_weighted_end_ = false;
  bool has_impossible_ = false;  // whether arcs of weight -inf were left out
  // The result: arcs, and the weights that add up to theirs.
  Arrays arrays_;
  Column direct_, plus_, minus_;
  // Of the subset that is expanded.
  std::vector<ElementArc> arcs_out_;
  std::vector<Member> members_;
};

}  // namespace

Graph determinize(const Graph& graph, Semiring semiring, std::optional<int64_t> max_nodes) {
  require(!max_nodes || *max_nodes > 0, kOp, "max_nodes must be 1 or more, but it is ",
          max_nodes.value_or(0));
  const Graph removed = remove(graph, kEpsilon, kEpsilon, semiring);
  constexpr int64_t kMany = 1'000'000;
  return Determinizer(removed, semiring,
                      max_nodes.value_or(kMany + 10 * int64_t{removed.num_nodes()}))
      .record();
}

}  // namespace arcgrad
