#include "arcgrad/algorithms/cycle_solver.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Bellman-Ford with a queue and a shortest-path tree (Tarjan's subtree disassembly; Cherkassky and
// Goldberg 1999, "Negative-cycle detection algorithms"). When the path of a node improves, all
// paths that continue it leave the tree, since their scores are out of date. If the improving arc
// starts in that subtree, it closes a cycle, whose weights are then summed exactly enough to decide
// whether it is positive. Invariant: the tree has no cycle, and the score of a node in the tree is
// the score of its tree path up to rounding. Time is usually linear in nodes and arcs, at worst
// their product.
//
// Among equally good paths those with the fewest arcs are chosen by a breadth-first search over the
// tight arcs, those with score(from) + weight == score(to).

namespace arcgrad {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

/// The ids of the arcs that leave each node.
class OutgoingArcs {
 public:
  OutgoingArcs(std::span<const InnerArc> arcs, size_t num_nodes) : begin_(num_nodes + 1, 0) {
    for (const InnerArc& arc : arcs) ++begin_[arc.from + 1];
    for (size_t n = 0; n < num_nodes; ++n) begin_[n + 1] += begin_[n];
    ids_.resize(arcs.size());
    std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < arcs.size(); ++i) ids_[next[arcs[i].from]++] = static_cast<int32_t>(i);
  }
  std::span<const int32_t> of(int32_t node) const {
    return std::span(ids_).subspan(begin_[node], begin_[node + 1] - begin_[node]);
  }

 private:
  std::vector<int32_t> begin_, ids_;
};

class BestPathTree {
 public:
  BestPathTree(std::span<const InnerArc> arcs, const OutgoingArcs& outgoing,
               const std::vector<double>& inflow)
      : arcs_(arcs),
        outgoing_(outgoing),
        score_(inflow),
        largest_(inflow.size(), 0.0),
        nodes_(inflow.size()) {
    for (const InnerArc& arc : arcs) is_positive_ |= arc.from == arc.to && arc.weight > 0.0;
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (score_[n] > kNegInf) {
        largest_[n] = std::abs(score_[n]);
        enqueue(static_cast<int32_t>(n));
      }
  }

  /// Finds the best score of each node, or false if a cycle is positive.
  bool run(std::vector<double>& score) && {
    InterruptPoll poll;
    while (!queue_.empty() && !is_positive_) {
      const int32_t from = queue_.front();
      queue_.pop_front();
      nodes_[from].is_queued = false;
      if (!nodes_[from].is_in_tree) continue;
      for (int32_t id : outgoing_.of(from)) {
        relax(id);
        poll(1 + std::ssize(below_));
      }
    }
    score = std::move(score_);
    return !is_positive_;
  }

 private:
  struct TreeNode {
    int32_t arc = -1;  // the last arc of its path
    // The children of a tree node are a doubly linked list.
    int32_t first_child = -1, next = -1, previous = -1;
    bool is_queued = false, is_in_tree = false;
  };

  void enqueue(int32_t node) {
    nodes_[node].is_in_tree = true;
    if (nodes_[node].is_queued) return;
    nodes_[node].is_queued = true;
    queue_.push_back(node);
  }

  void relax(int32_t id) {
    const auto [from, to, slot, weight] = arcs_[id];
    const double score = score_[from] + weight;
    if (score == kNegInf) return;
    // A gain within the rounding error of the sums is ignored, as it would lead to needlessly long
    // paths. But a node outside the tree must get a path again even if its score stays the same.
    const double largest = std::max({largest_[from], std::abs(weight), std::abs(score)});
    const double gain = score - score_[to], slack = 8.0 * kEps * std::max(largest, largest_[to]);
    if (nodes_[to].is_in_tree ? !(gain > slack) : gain < 0.0) return;
    gather_below(to);
    if (std::ranges::find(below_, from) != below_.end()) {
      is_positive_ |= is_positive(id);
      return;
    }
    for (int32_t n : below_) {
      const bool is_queued = nodes_[n].is_queued;
      nodes_[n] = {};
      nodes_[n].is_queued = is_queued;
    }
    move(to, id);
    score_[to] = score;
    largest_[to] = largest;
    enqueue(to);
  }

  /// Whether the cycle that this arc closes is positive.
  bool is_positive(int32_t id) const {
    // Compensated summation, since a small gain counts even among large weights.
    double sum = 0.0, lost = 0.0, heaviest = 0.0;
    int32_t count = 0;
    for (int32_t i = id, n = arcs_[id].from;; i = nodes_[n].arc, n = arcs_[i].from) {
      const double weight = arcs_[i].weight, next = sum + weight;
      lost += std::abs(sum) >= std::abs(weight) ? (sum - next) + weight : (weight - next) + sum;
      sum = next;
      heaviest = std::max(heaviest, std::abs(weight));
      ++count;
      if (n == arcs_[id].to) break;
    }
    // Weights that should sum to zero may miss it by one rounding error each.
    return sum + lost > 4.0 * count * kEps * heaviest;
  }

  /// Sets `below_` to the subtree of `node`, without itself.
  void gather_below(int32_t node) {
    below_.clear();
    for (int32_t n = nodes_[node].first_child; n >= 0; n = nodes_[n].next) below_.push_back(n);
    for (size_t i = 0; i < below_.size(); ++i)
      for (int32_t n = nodes_[below_[i]].first_child; n >= 0; n = nodes_[n].next)
        below_.push_back(n);
  }
  /// Makes `arc` the last arc of the path to a node.
  void move(int32_t node, int32_t arc) {
    TreeNode& here = nodes_[node];
    if (here.arc >= 0) {
      (here.previous >= 0 ? nodes_[here.previous].next : nodes_[arcs_[here.arc].from].first_child) =
          here.next;
      if (here.next >= 0) nodes_[here.next].previous = here.previous;
    }
    TreeNode& parent = nodes_[arcs_[arc].from];
    here = {arc, -1, parent.first_child, -1, here.is_queued, true};
    if (here.next >= 0) nodes_[here.next].previous = node;
    parent.first_child = node;
  }

  std::span<const InnerArc> arcs_;
  const OutgoingArcs& outgoing_;
  bool is_positive_ = false;
  std::vector<double> score_;
  std::vector<double> largest_;  // of the weights and sums on the path to each node
  std::vector<TreeNode> nodes_;
  std::deque<int32_t> queue_;
  std::vector<int32_t> below_;
};

}  // namespace

std::optional<CyclePaths> best_cycle_paths(std::span<const InnerArc> arcs,
                                           const std::vector<double>& inflow,
                                           const std::vector<int32_t>& slot) {
  const size_t num_nodes = inflow.size();
  const OutgoingArcs outgoing(arcs, num_nodes);
  CyclePaths paths{{}, slot, {}};
  // With zero inflow first: added to large scores, the gain of a cycle may be lost in rounding.
  if (!BestPathTree(arcs, outgoing, std::vector<double>(num_nodes, 0.0)).run(paths.score) ||
      !BestPathTree(arcs, outgoing, inflow).run(paths.score))
    return std::nullopt;
  constexpr int32_t kUnknown = -1;
  paths.length.assign(num_nodes, kUnknown);
  const auto is_tight = [&](const InnerArc& arc) {
    return paths.score[arc.from] + arc.weight == paths.score[arc.to];
  };
  // Breadth-first search from the nodes where the best path enters the component.
  std::vector<int32_t> reached;
  for (size_t n = 0; n < num_nodes; ++n)
    if (inflow[n] == paths.score[n]) {
      paths.length[n] = 0;
      if (inflow[n] > kNegInf) reached.push_back(static_cast<int32_t>(n));
    }
  for (size_t i = 0; i < reached.size(); ++i)
    for (int32_t id : outgoing.of(reached[i]))
      if (const int32_t to = arcs[id].to; paths.length[to] == kUnknown && is_tight(arcs[id])) {
        paths.length[to] = paths.length[reached[i]] + 1;
        reached.push_back(to);
      }
  std::vector<bool> is_chosen(num_nodes);
  for (const InnerArc& arc : arcs) {
    const bool is_best = paths.length[arc.from] + 1 == paths.length[arc.to] && is_tight(arc);
    if (!is_best || is_chosen[arc.to]) continue;
    paths.slot[arc.to] = arc.slot;
    is_chosen[arc.to] = true;
  }
  return paths;
}

std::vector<SparseLu::MatrixEntry> cycle_matrix(std::span<const InnerArc> arcs,
                                                const std::vector<double>& best) {
  std::vector<double> heaviest_loop(best.size(), kNegInf);
  for (const InnerArc& arc : arcs)
    if (arc.from == arc.to) heaviest_loop[arc.from] = std::max(heaviest_loop[arc.from], arc.weight);
  std::vector<SparseLu::MatrixEntry> entries;
  entries.reserve(best.size() + arcs.size());
  for (size_t i = 0; i < best.size(); ++i) {
    // One minus the heaviest loop, without cancellation if that is near one.
    const auto node = static_cast<int32_t>(i);
    entries.push_back({node, node, -std::expm1(heaviest_loop[i])});
  }
  for (const auto& [from, to, slot, weight] : arcs)
    if (from == to && weight == heaviest_loop[from])
      heaviest_loop[from] = kNegInf;  // subtracted above
    else
      entries.push_back({from, to, -std::exp(weight + (best[from] - best[to]))});
  return entries;
}

double log_spectral_radius(std::span<const InnerArc> arcs, size_t num_nodes) {
  std::vector<double> x(num_nodes, 0.0), next(num_nodes);
  // Relative to the heaviest arc, so that the identity does not absorb small matrices.
  double unit = kNegInf;
  for (const InnerArc& arc : arcs) unit = std::max(unit, arc.weight);
  double low = 0.0, high = 0.0;
  // Power iteration on identity + matrix, which converges for periodic components too. The least
  // and the largest growth of an entry are bounds (Collatz and Wielandt).
  for (int round = 0; round < 1000; ++round) {
    poll_interrupt();
    next = x;
    for (const auto& [from, to, slot, weight] : arcs)
      next[to] = logadd(next[to], x[from] + weight - unit);
    low = high = next[0] - x[0];
    for (size_t i = 0; i < num_nodes; ++i) {
      low = std::min(low, next[i] - x[i]);
      high = std::max(high, next[i] - x[i]);
    }
    if (high - low < 1e-13) break;
    const double top = *std::ranges::max_element(next);
    for (size_t i = 0; i < num_nodes; ++i) x[i] = next[i] - top;
  }
  low = std::log(std::expm1(low));
  high = std::log(std::expm1(high));
  // Long cycles converge slowly: bisect, since the elimination succeeds only above the radius.
  std::vector<InnerArc> scaled(arcs.begin(), arcs.end());
  const std::vector<double> zeros(num_nodes, 0.0);
  low = std::max(low, high - 100.0);
  while (high - low > 1e-9) {
    const double middle = low + (high - low) / 2.0;
    for (size_t k = 0; k < arcs.size(); ++k) scaled[k].weight = arcs[k].weight - unit - middle;
    const auto lu = SparseLu::factor(num_nodes, cycle_matrix(scaled, zeros), 0.0);
    if (lu && lu->num_dense() > SparseLu::kMaxDense) break;
    (lu ? high : low) = middle;
  }
  return high + unit;
}

}  // namespace arcgrad
