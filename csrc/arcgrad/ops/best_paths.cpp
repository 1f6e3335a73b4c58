#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The n best paths of a graph, by A* search with exact heuristics (Soong and Huang 1991;
// Mohri and Riley 2002, "An efficient algorithm for the n-best-strings problem").
//
// One tropical pass from the accept nodes gives best(n), the best score from n to an end. The loss
// of an arc (s, d, w) is best(s) - w - best(d) >= 0, and the loss of a path is the sum over its
// arcs. A priority queue holds prefixes of paths by loss, each of which continues by arcs of loss
// zero; so prefixes leave the queue in the order of the best paths through them, and no step is
// wasted. Invariant: of the arcs from the end of a prefix only the best one not yet taken is in the
// queue.
//
// For distinct output strings, an entry of the queue is a prefix of a string, with the best path to
// every node that the prefix can reach (determinization on the fly). Ties are broken by comparing
// paths in a tree of prefixes, where jump pointers find the first difference in logarithmic time.
//
// With cycles, the search must not follow a cycle of loss zero forever. So of equal losses the
// fewest arcs come first: the length of a prefix is its arcs and the fewest arcs of loss zero from
// there to an end. Without cycles all lengths are zero, and arc ids alone decide.

namespace arcgrad {
namespace {

constexpr char kOp[] = "best_paths";
/// Checks for Ctrl-C, and whether the queue and the results have passed the memory limit.
void poll() {
  poll_interrupt();
  require_memory(0);
}

/// The end of a path, which precedes any arc.
constexpr int32_t kEnd = -1;

/// A tree of paths, each of which is one arc longer than its parent.
class PrefixTree {
 public:
  static constexpr int64_t kEmpty = 0;

  int64_t add(int64_t parent, int32_t arc) {
    // Skew-binary jump lengths (Myers 1983): any ancestor is O(log depth) jumps away.
    const Prefix& p = entries_[parent];
    const Prefix &near = entries_[p.jump], &far = entries_[near.jump];
    const int64_t jump = p.depth - near.depth == near.depth - far.depth ? near.jump : parent;
    entries_.push_back({parent, jump, p.depth + 1, arc});
    return static_cast<int64_t>(entries_.size()) - 1;
  }
  void remove_last() { entries_.pop_back(); }

  int64_t parent(int64_t path) const { return entries_[path].parent; }
  int32_t depth(int64_t path) const { return entries_[path].depth; }

  /// Whether path `a` precedes `b`: by the arc at the first difference, or as a prefix.
  bool is_before(int64_t a, int64_t b) const {
    int64_t x = ancestor(a, entries_[b].depth), y = ancestor(b, entries_[a].depth);
    if (x == y) return entries_[a].depth < entries_[b].depth;
    while (entries_[x].parent != entries_[y].parent) {
      const bool is_far = entries_[x].jump != entries_[y].jump;
      x = is_far ? entries_[x].jump : entries_[x].parent;
      y = is_far ? entries_[y].jump : entries_[y].parent;
    }
    return entries_[x].arc != entries_[y].arc ? entries_[x].arc < entries_[y].arc : x < y;
  }

  Column arcs(int64_t path) const {
    Column out;
    for (; path != kEmpty; path = entries_[path].parent)
      if (entries_[path].arc != kEnd) out.push_back(entries_[path].arc);
    std::ranges::reverse(out);
    return out;
  }

 private:
  struct Prefix {
    int64_t parent, jump;
    int32_t depth, arc;
  };

  int64_t ancestor(int64_t path, int32_t depth) const {
    while (entries_[path].depth > depth) {
      const int64_t jump = entries_[path].jump;
      path = entries_[jump].depth >= depth ? jump : entries_[path].parent;
    }
    return path;
  }

  std::vector<Prefix> entries_{{kEmpty, kEmpty, 0, kEnd}};
};

/// The order of a priority queue: by loss, then by length, then by path.
struct IsWorse {
  const PrefixTree& tree;
  bool operator()(const auto& a, const auto& b) const {
    if (a.loss != b.loss) return a.loss > b.loss;
    return a.length != b.length ? a.length > b.length : tree.is_before(b.path, a.path);
  }
};

/// The losses of arcs. The sum along a path is the best score minus its score; the best
/// continuation of a node loses exactly zero.
class Losses {
 public:
  explicit Losses(const Graph& graph)
      : topology_(*expanded(graph.topology_ptr())),
        weights_(graph.weights().cast(DType::float64)),
        scores_(expanded(graph.topology_ptr()), weights_, topology_.accept(),
                {.op = kOp, .direction = Direction::reverse, .semiring = Semiring::tropical}) {
    for (const int32_t n : topology_.start()) best_ = std::max(best_, scores_.score(n));
    if (is_cyclic()) count_arcs();
  }

  const Topology& topology() const { return topology_; }
  bool is_cyclic() const { return !topology_.is_acyclic(); }
  bool has_path() const { return best_ > kNegInf; }
  /// With cycles, the fewest arcs of loss zero from a node to an end.
  int32_t num_arcs_left(int32_t node) const { return num_arcs_left_[node]; }
  double of_start(int32_t node) const { return best_ - scores_.score(node); }
  /// Calls `visit(loss, arc, destination)` for the arcs of a node that lead to an end.
  template <class Visit>
  void for_steps(int32_t node, const Visit& visit) const {
    const double best = scores_.score(node);
    if (best == kNegInf) return;
    if (topology_.is_accept(node)) visit(std::max(best, 0.0), kEnd, -1);
    const Adjacency& out = topology_.out();
    const auto weight = weights_.view<double>();
    for (int32_t k = out.offset[node]; k < out.offset[node + 1]; ++k) {
      const double step = weight[out.arc(k)] + scores_.score(out.node[k]);
      // Where the weights of a cycle should sum to zero, rounding may have made a small gain.
      if (step > kNegInf) visit(std::max(best - step, 0.0), out.arc(k), out.node[k]);
    }
  }

 private:
  /// Breadth-first search against the arcs of loss zero.
  void count_arcs() {
    num_arcs_left_.assign(static_cast<size_t>(topology_.num_nodes()), topology_.num_nodes());
    std::vector<int32_t> reached;
    for (const int32_t n : topology_.accept())
      if (scores_.score(n) <= 0.0) {
        num_arcs_left_[n] = 0;
        reached.push_back(n);
      }
    const Adjacency& in = topology_.in();
    const auto weight = weights_.view<double>();
    InterruptPoll poll;
    for (size_t i = 0; i < reached.size(); ++i) {
      const int32_t d = reached[i];
      poll(1 + in.offset[d + 1] - in.offset[d]);
      for (int32_t k = in.offset[d]; k < in.offset[d + 1]; ++k) {
        const int32_t s = in.node[k];
        const double step = weight[in.arc(k)] + scores_.score(d);
        if (num_arcs_left_[s] <= num_arcs_left_[d] + 1 || step < scores_.score(s)) continue;
        num_arcs_left_[s] = num_arcs_left_[d] + 1;
        reached.push_back(s);
      }
    }
  }

  const Topology& topology_;
  Weights weights_;
  PathScores scores_;
  double best_ = kNegInf;
  std::vector<int32_t> num_arcs_left_;  // of each node; empty without cycles
};

/// All paths, the best first. A path adds two entries to the queue for each of its arcs.
class PathSearch {
 public:
  explicit PathSearch(const Losses& losses)
      : losses_(losses), steps_of_(static_cast<size_t>(losses.topology().num_nodes())) {
    for (const int32_t n : losses.topology().start()) append_steps(n, losses.of_start(n));
    push(PrefixTree::kEmpty, 0.0, 0, {0, sort_steps(0)});
  }
  PathSearch(const PathSearch&) = delete;

  /// The arcs of the next path; nothing after the last one.
  std::optional<Column> next() {
    while (!queue_.empty()) {
      constexpr int64_t kBetweenPolls = 256;
      if (++count_ % kBetweenPolls == 0) poll();
      const PathEntry item = queue_.top();
      queue_.pop();
      const Step step = steps_[item.steps.begin];
      push(tree_.parent(item.path), item.loss_before, item.num_arcs,
           {item.steps.begin + 1, item.steps.end});
      if (step.arc == kEnd) return tree_.arcs(item.path);
      push(item.path, item.loss, item.num_arcs + (losses_.is_cyclic() ? 1 : 0),
           steps_from(step.dst));
    }
    return std::nullopt;
  }

 private:
  struct Step {
    double loss;
    int32_t num_arcs;  // with cycles, from here to an end
    int32_t arc, dst;
  };
  /// The steps from a node, the best first.
  struct StepRange {
    int64_t begin, end;
  };
  /// A path that ends with the first of some steps.
  struct PathEntry {
    double loss;
    int64_t length, path;
    double loss_before;
    int64_t num_arcs;  // with cycles, before the step
    StepRange steps;
  };

  void push(int64_t path, double loss, int64_t num_arcs, StepRange steps) {
    if (steps.begin == steps.end) return;
    const Step& first = steps_[steps.begin];
    queue_.push({loss + first.loss, num_arcs + first.num_arcs, tree_.add(path, first.arc), loss,
                 num_arcs, steps});
  }

  StepRange steps_from(int32_t node) {
    StepRange& range = steps_of_[node];
    if (range.begin == range.end) {
      range.begin = static_cast<int64_t>(steps_.size());
      append_steps(node, 0.0);
      range.end = sort_steps(range.begin);
    }
    return range;
  }
  void append_steps(int32_t node, double loss_before) {
    losses_.for_steps(node, [&](double loss, int32_t arc, int32_t dst) {
      const bool is_counted = losses_.is_cyclic() && arc != kEnd;
      const int32_t num_arcs = is_counted ? 1 + losses_.num_arcs_left(dst) : 0;
      steps_.push_back({loss_before + loss, num_arcs, arc, dst});
    });
  }
  int64_t sort_steps(int64_t begin) {
    std::ranges::stable_sort(steps_.begin() + begin, steps_.end(), {},
                             [](const Step& s) { return std::tuple(s.loss, s.num_arcs, s.arc); });
    return static_cast<int64_t>(steps_.size());
  }

  const Losses& losses_;
  PrefixTree tree_;
  std::vector<Step> steps_;
  std::vector<StepRange> steps_of_;
  std::priority_queue<PathEntry, std::vector<PathEntry>, IsWorse> queue_{IsWorse{tree_}};
  int64_t count_ = 0;
};

/// The best path of each output string, the best first. An entry of the queue is a prefix of a
/// string with the best path to every node that it can reach.
class StringSearch {
 public:
  StringSearch(const Losses& losses, int64_t n)
      : losses_(losses), n_(static_cast<size_t>(n)), position_(positions(losses.topology())) {
    slot_.resize(position_.size(), -1);
    StringEntry root{0.0, 0, PrefixTree::kEmpty, {}};
    for (const int32_t node : losses.topology().start())
      root.arrivals.push_back(
          {node, losses.of_start(node), length_of(PrefixTree::kEmpty, node), PrefixTree::kEmpty});
    queue_.push_back(std::move(root));
  }
  StringSearch(const StringSearch&) = delete;

  /// The arcs of the next path; nothing after the last one.
  std::optional<Column> next() {
    while (!queue_.empty()) {
      poll();
      std::ranges::pop_heap(queue_, IsWorse{tree_});
      const StringEntry item = std::move(queue_.back());
      queue_.pop_back();
      if (item.arrivals.empty()) return tree_.arcs(item.path);
      extend(item);
    }
    return std::nullopt;
  }

 private:
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  /// The best path with some output to a node.
  struct Arrival {
    int32_t node;
    double loss;
    int64_t length = 0;
    int64_t path = PrefixTree::kEmpty;
  };
  /// A prefix of a string, with the best of its arrivals; a whole path if there are no arrivals.
  struct StringEntry {
    double loss;
    int64_t length, path;
    std::vector<Arrival> arrivals;
  };

  static std::vector<int32_t> positions(const Topology& topology) {
    std::vector<int32_t> position(static_cast<size_t>(topology.num_nodes()));
    for (int32_t p = 0; p < topology.num_nodes(); ++p) position[topology.order().node(p)] = p;
    return position;
  }

  /// Arcs up to the end of the best path that continues a path; zero without cycles.
  int64_t length_of(int64_t path, int32_t node) const {
    if (!losses_.is_cyclic()) return 0;
    return tree_.depth(path) + (node < 0 ? 0 : losses_.num_arcs_left(node));
  }

  /// Replaces `to` by the path one arc longer than `path` if that is better. Returns whether it is.
  bool improve(Arrival& to, int64_t path, int32_t arc, double loss) {
    if (loss > to.loss) return false;
    const int64_t longer = tree_.add(path, arc);
    const Arrival found{to.node, loss, length_of(longer, to.node), longer};
    const bool is_better = loss < to.loss || IsWorse{tree_}(to, found);
    if (is_better)
      to = found;
    else
      tree_.remove_last();
    return is_better;
  }

  /// Replaces a prefix by the whole string and by all prefixes that are one label longer.
  void extend(const StringEntry& item) {
    const Topology& t = losses_.topology();
    const auto olabel = t.olabel();
    const bool is_cyclic = losses_.is_cyclic();
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
    std::vector<Arrival> arrivals;
    const auto reach = [&](int32_t node) -> Arrival& {
      if (slot_[node] < 0) {
        slot_[node] = static_cast<int32_t>(arrivals.size());
        arrivals.push_back({node, kInf});
        if (!is_cyclic) turns.push({0.0, position_[node], node});
      }
      return arrivals[slot_[node]];
    };
    const auto turn_of = [&](const Arrival& arrival) {
      return Turn{arrival.loss, tree_.depth(arrival.path), arrival.node};
    };
    Arrival end{-1, kInf};
    std::vector<Longer> longer;
    std::unordered_map<uint64_t, size_t> known;
    const auto reach_with = [&](int32_t label, int32_t node) -> Arrival& {
      const auto key = uint64_t{static_cast<uint32_t>(label)} << 32 | static_cast<uint32_t>(node);
      const auto [at, is_new] = known.try_emplace(key, longer.size());
      if (is_new) longer.push_back({label, {node, kInf}});
      return longer[at->second].arrival;
    };
    const auto leave = [&](const Arrival from) {
      poll_();
      losses_.for_steps(from.node, [&](double loss, int32_t arc, int32_t dst) {
        loss += from.loss;
        if (loss > bound_) return;
        const bool is_silent = arc != kEnd && olabel[arc] == kEpsilon;
        Arrival& to = arc == kEnd ? end : is_silent ? reach(dst) : reach_with(olabel[arc], dst);
        if (improve(to, from.path, arc, loss) && is_silent && is_cyclic) turns.push(turn_of(to));
      });
    };
    // An empty path to a start node must not be compared with a longer path to it: their order is
    // decided by the arcs that follow. With cycles, by their lengths.
    for (const Arrival& p : item.arrivals)
      if (is_cyclic) {
        reach(p.node) = p;
        turns.push(turn_of(p));
      } else if (p.path == PrefixTree::kEmpty) {
        leave(p);
      } else {
        reach(p.node) = p;
      }
    while (!turns.empty()) {
      const Turn turn = turns.top();
      turns.pop();
      const Arrival arrival = arrivals[slot_[turn.node]];
      if (!is_cyclic || turn == turn_of(arrival)) leave(arrival);
    }
    for (const Arrival& p : arrivals) slot_[p.node] = -1;

    std::vector<StringEntry> items;
    if (end.loss < kInf) items.push_back({end.loss, end.length, end.path, {}});
    std::ranges::stable_sort(longer, {}, &Longer::label);
    for (size_t k = 0; k < longer.size(); ++k) {
      const Arrival& arrival = longer[k].arrival;
      if (k == 0 || longer[k].label != longer[k - 1].label)
        items.push_back({arrival.loss, arrival.length, arrival.path, {}});
      StringEntry& last = items.back();
      last.arrivals.push_back(arrival);
      if (IsWorse{tree_}(last, arrival)) {
        last.loss = arrival.loss;
        last.length = arrival.length;
        last.path = arrival.path;
      }
    }
    tighten(items);
    for (StringEntry& each : items) {
      if (each.loss > bound_) continue;
      queue_.push_back(std::move(each));
      std::ranges::push_heap(queue_, IsWorse{tree_});
    }
  }
  /// When a node is left, so that the best path to it is final: in topological order, or with
  /// cycles by loss and number of arcs, as in Dijkstra's algorithm.
  struct Turn {
    double loss;
    int32_t order, node;
    auto operator<=>(const Turn&) const = default;
  };
  struct Longer {
    int32_t label;
    Arrival arrival;
  };

  /// The losses of the entries belong to distinct strings. So the n-th smallest one bounds the
  /// losses of the n best strings, and paths of more loss are dropped.
  void tighten(const std::vector<StringEntry>& items) {
    std::vector<double> found;
    for (const StringEntry& item : items) found.push_back(item.loss);
    std::ranges::sort(found);
    // The smallest is the loss of the item that was extended, which is counted already.
    for (size_t k = smallest_.empty() ? 0 : 1; k < found.size(); ++k) {
      smallest_.push(found[k]);
      if (smallest_.size() > n_) smallest_.pop();
    }
    if (smallest_.size() == n_) bound_ = smallest_.top();
  }

  const Losses& losses_;
  InterruptPoll poll_;
  size_t n_;
  /// The position of each node in topological order.
  std::vector<int32_t> position_;
  /// The index of each node among the arrivals of the entry that is being extended, or -1.
  std::vector<int32_t> slot_;
  PrefixTree tree_;
  std::vector<StringEntry> queue_;
  std::priority_queue<double> smallest_;
  double bound_ = kInf;
};

template <class Search>
std::vector<Graph> take(const Graph& graph, int64_t n, Search&& search) {
  std::vector<Graph> out;
  while (static_cast<int64_t>(out.size()) < n) {
    std::optional<Column> arcs = search.next();
    if (!arcs) break;
    out.push_back(record_path(kOp, graph, std::move(*arcs)));
  }
  return out;
}

void check(int64_t n) { require(n >= 1, kOp, "n must be 1 or more, but it is ", n); }

}  // namespace

std::vector<Graph> best_paths(const Graph& graph, int64_t n, bool unique) {
  check(n);
  const Losses losses(graph);
  if (!losses.has_path()) return {};
  return unique ? take(graph, n, StringSearch(losses, n)) : take(graph, n, PathSearch(losses));
}

std::vector<std::vector<Graph>> best_paths(const std::vector<Graph>& graphs, int64_t n,
                                           bool unique) {
  check(n);
  std::vector<std::vector<Graph>> out(graphs.size());
  int64_t work = 0;
  for (const Graph& graph : graphs) work += work_of(graph);
  for_batch(kOp, graphs.size(), [&](size_t i) { out[i] = best_paths(graphs[i], n, unique); }, work);
  return out;
}

}  // namespace arcgrad
