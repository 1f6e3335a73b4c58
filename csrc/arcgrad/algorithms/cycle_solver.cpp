#include "arcgrad/algorithms/cycle_solver.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/parallel.h"

namespace arcgrad {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

/// Links by the node they leave.
class Leaving {
 public:
  Leaving(std::span<const Link> links, size_t num_nodes) : begin_(num_nodes + 1, 0) {
    for (const Link& link : links) ++begin_[link.from + 1];
    for (size_t n = 0; n < num_nodes; ++n) begin_[n + 1] += begin_[n];
    ids_.resize(links.size());
    std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < links.size(); ++i) ids_[next[links[i].from]++] = static_cast<int32_t>(i);
  }
  std::span<const int32_t> of(int32_t node) const {
    return std::span(ids_).subspan(begin_[node], begin_[node + 1] - begin_[node]);
  }

 private:
  std::vector<int32_t> begin_, ids_;
};

/// The recursion of Bellman and Ford with a queue, which keeps the tree of the best paths so far.
///
/// A node whose path becomes better drops all paths that go on from it, as they are out of date.
/// If the better path itself is one of them, it closes a cycle; so the tree never has one, and each
/// cycle is judged by its own weights.
class BestTree {
 public:
  BestTree(std::span<const Link> links, const Leaving& leaving, const std::vector<double>& inflow)
      : links_(links),
        leaving_(leaving),
        score_(inflow),
        largest_(inflow.size(), 0.0),
        nodes_(inflow.size()) {
    for (const Link& link : links) is_positive_ |= link.from == link.to && link.weight > 0.0;
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (score_[n] > kNegInf) {
        largest_[n] = std::abs(score_[n]);
        enqueue(static_cast<int32_t>(n));
      }
  }

  /// Finds the best score of each node, or false if a cycle is positive.
  bool run(std::vector<double>& score) && {
    while (!queue_.empty() && !is_positive_) {
      const int32_t from = queue_.front();
      queue_.pop_front();
      nodes_[from].is_queued = false;
      if (!nodes_[from].is_in_tree) continue;
      poll_interrupt();
      for (int32_t id : leaving_.of(from)) relax(id);
    }
    score = std::move(score_);
    return !is_positive_;
  }

 private:
  struct Node {
    int32_t link = -1;  // by which the path arrives
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
    const auto [from, to, slot, weight] = links_[id];
    const double score = score_[from] + weight;
    if (score == kNegInf) return;
    // What rounding makes of sums that should be equal is no gain: following it takes long, and
    // leads to long paths. But a dropped node has to be looked at again even if its score stays.
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

  /// Whether the cycle that a link closes is.
  bool is_positive(int32_t id) const {
    // The sum with what rounding takes from it: a small gain has to be seen beside large weights.
    double sum = 0.0, lost = 0.0, heaviest = 0.0;
    int32_t count = 0;
    for (int32_t i = id, n = links_[id].from;; i = nodes_[n].link, n = links_[i].from) {
      const double weight = links_[i].weight, next = sum + weight;
      lost += std::abs(sum) >= std::abs(weight) ? (sum - next) + weight : (weight - next) + sum;
      sum = next;
      heaviest = std::max(heaviest, std::abs(weight));
      ++count;
      if (n == links_[id].to) break;
    }
    // Weights that should sum to zero may miss it by the rounding of each.
    return sum + lost > 4.0 * count * kEps * heaviest;
  }

  /// Sets below_ to all nodes whose paths go through `node`.
  void gather_below(int32_t node) {
    below_.clear();
    for (int32_t n = nodes_[node].first_child; n >= 0; n = nodes_[n].next) below_.push_back(n);
    for (size_t i = 0; i < below_.size(); ++i)
      for (int32_t n = nodes_[below_[i]].first_child; n >= 0; n = nodes_[n].next)
        below_.push_back(n);
  }
  /// Lets the path to a node arrive by a link, instead of the one by which it did, if any.
  void move(int32_t node, int32_t link) {
    Node& here = nodes_[node];
    if (here.link >= 0) {
      (here.previous >= 0 ? nodes_[here.previous].next
                          : nodes_[links_[here.link].from].first_child) = here.next;
      if (here.next >= 0) nodes_[here.next].previous = here.previous;
    }
    Node& parent = nodes_[links_[link].from];
    here = {link, -1, parent.first_child, -1, here.is_queued, true};
    if (here.next >= 0) nodes_[here.next].previous = node;
    parent.first_child = node;
  }

  std::span<const Link> links_;
  const Leaving& leaving_;
  bool is_positive_ = false;
  std::vector<double> score_;
  std::vector<double> largest_;  // of the weights and sums on the path to each node
  std::vector<Node> nodes_;
  std::deque<int32_t> queue_;
  std::vector<int32_t> below_;
};

}  // namespace

std::optional<CyclePaths> best_cycle_paths(std::span<const Link> links,
                                           const std::vector<double>& inflow,
                                           const std::vector<int32_t>& slot) {
  const size_t num_nodes = inflow.size();
  const Leaving leaving(links, num_nodes);
  CyclePaths paths{{}, slot, {}};
  // From zero first: beside the score of a long way, the gain of a cycle may be lost by rounding.
  if (!BestTree(links, leaving, std::vector<double>(num_nodes, 0.0)).run(paths.score) ||
      !BestTree(links, leaving, inflow).run(paths.score))
    return std::nullopt;
  constexpr int32_t kUnknown = -1;
  paths.length.assign(num_nodes, kUnknown);
  const auto is_tight = [&](const Link& link) {
    return paths.score[link.from] + link.weight == paths.score[link.to];
  };
  // From those that paths enter on, by the number of links.
  std::vector<int32_t> reached;
  for (size_t n = 0; n < num_nodes; ++n)
    if (inflow[n] == paths.score[n]) {
      paths.length[n] = 0;
      if (inflow[n] > kNegInf) reached.push_back(static_cast<int32_t>(n));
    }
  for (size_t i = 0; i < reached.size(); ++i)
    for (int32_t id : leaving.of(reached[i]))
      if (const int32_t to = links[id].to; paths.length[to] == kUnknown && is_tight(links[id])) {
        paths.length[to] = paths.length[reached[i]] + 1;
        reached.push_back(to);
      }
  std::vector<bool> is_chosen(num_nodes);
  for (const Link& link : links) {
    const bool is_best = paths.length[link.from] + 1 == paths.length[link.to] && is_tight(link);
    if (!is_best || is_chosen[link.to]) continue;
    paths.slot[link.to] = link.slot;
    is_chosen[link.to] = true;
  }
  return paths;
}

double log_spectral_radius(std::span<const Link> links, size_t num_nodes) {
  std::vector<double> x(num_nodes, 0.0), next(num_nodes);
  // Scale by the heaviest arc so that the identity does not drown small matrices.
  double unit = kNegInf;
  for (const Link& link : links) unit = std::max(unit, link.weight);
  double growth = 0.0;
  // By power iteration on identity + arcs, which converges for periodic components too.
  for (int round = 0; round < 1000; ++round) {
    next = x;
    for (const auto& [from, to, slot, weight] : links)
      next[to] = logadd(next[to], x[from] + weight - unit);
    const double top = *std::ranges::max_element(next);
    const double before = growth;
    growth = top;  // x was normalised to a maximum of 0
    for (size_t i = 0; i < num_nodes; ++i) x[i] = next[i] - top;
    if (round > 20 && std::abs(growth - before) < 1e-13) break;
  }
  return std::log(std::expm1(growth)) + unit;
}

}  // namespace arcgrad
