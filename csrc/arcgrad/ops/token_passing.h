#pragma once

// Frame-synchronous Viterbi beam search (token passing): the composition of the graph with the
// emissions is built frame by frame, and only where its best scores are within the beam.
//
// Between two frames, score(n) is the best score of the paths to node n of the graph. At a frame,
// all labelled arcs that leave active nodes are taken: score(d) = max(score(s) + weight +
// emission). Then epsilon arcs are followed by Bellman-Ford with a queue, until no score improves.
// Then nodes below the beam or beyond max_active become inactive. Invariant: the lattice is in
// topological order, and has the best path to every active node. The arcs of kept nodes join the
// lattice; at the end a forward-backward pass removes arcs that are not within lattice_beam of the
// best path.
//
// A frame costs O(active nodes + arcs that leave them + epsilon arcs followed), whatever the size
// of the graph.

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/lazy_composition.h"
#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/search_lattice.h"

namespace arcgrad {

inline constexpr char kOp[] = "beam_search";

/// A search through a graph, or through a lazy composition.
template <class T>
class BeamSearch {
 public:
  static constexpr double kBoundless = std::numeric_limits<double>::infinity();

  BeamSearch(const Topology& topology, const T* weight, const T* emission, const Pruning& pruning)
      : topology_(&topology),
        failures_(find_failures(kOp, topology, Side::input)),
        index_(topology.index(Side::input)),
        weight_(weight),
        emission_(emission),
        pruning_(pruning),
        num_nodes_(topology.num_nodes()),
        slot_(static_cast<size_t>(num_nodes_) * (failures_ ? 2 : 1), -1) {}
  /// The graph is composed while it is searched.
  BeamSearch(LazyComposition& lazy, const T* emission, const Pruning& pruning)
      : lazy_(&lazy),
        failures_(nullptr),
        index_(lazy.arcs()),
        weight_(nullptr),
        emission_(emission),
        pruning_(pruning),
        num_nodes_(std::numeric_limits<int32_t>::max()) {
    slot_.resize(static_cast<size_t>(lazy.num_nodes()), -1);
  }

  const SearchLattice<T>& run(int32_t frames, int32_t labels) {
    for (const int32_t node : lazy_ ? std::span<const int32_t>(lazy_->start()) : topology_->start())
      if (const LatticeEnd<T> end = end_of(-1, start_weight(node)); end.weight > kNegInf)
        enter(node, static_cast<double>(end.weight));
    const size_t num_start = reached_.size();
    finish_frame(-1, frames == 0);
    for (size_t i = 0; i < num_start; ++i)
      if (const Reached& at = reached_[i]; at.id >= 0)
        lattice_.start.push_back(end_of(at.id, start_weight(at.node)));
    std::ranges::sort(lattice_.start, {}, &LatticeEnd<T>::node);
    for (int32_t t = 0; t < frames && !front_.empty(); ++t) {
      poll_interrupt();
      const bool is_last = t + 1 == frames;
      step(emission_ + int64_t{t} * labels, labels, is_last ? kBoundless : pruning_.beam);
      finish_frame(t, is_last);
    }
    for (const Active& active : front_)
      if (const int32_t node = node_of(active.node); is_accept(node))
        lattice_.accept.push_back(end_of(active.id, lazy_ ? -1 : topology_->accept_weight(node)));
    std::ranges::sort(lattice_.accept, {}, &LatticeEnd<T>::node);
    return lattice_;
  }

 private:
  /// A node of the graph that paths have reached between two frames. Nodes that they reach by
  /// backing off at the end of the string are apart, `num_nodes_` higher: fewer arcs leave them.
  struct Reached {
    int32_t node;
    int32_t parent;  // of the last arc of the best path, if that is an epsilon arc, or -1
    T parent_weight;
    double score;
    bool is_waiting = false, is_active = false;
    int32_t id = kDropped;
  };
  static constexpr int32_t kDropped = -1, kKept = -2;
  /// A node whose arcs are taken at the next frame.
  struct Active {
    int32_t node, id;
    double score;
  };
  /// An arc taken at the frame, before it is known whether its destination is kept.
  struct FrameArc {
    int32_t src, node, arc;
    T weight;
    double score;
  };
  /// An epsilon arc between kept nodes, by their indices.
  struct EpsilonArc {
    int32_t src, dst, arc;
    T weight;
  };

  /// Makes the arcs of a node of a lazy composition.
  void prepare(int32_t node) {
    if (lazy_ == nullptr) [[likely]]
      return;
    lazy_->expand(node);
    const std::vector<double>& weights = lazy_->weights();
    for (size_t k = lazy_weights_.size(); k < weights.size(); ++k)
      lazy_weights_.push_back(static_cast<T>(weights[k]));
    weight_ = lazy_weights_.data();
    slot_.resize(static_cast<size_t>(lazy_->num_nodes()), -1);
  }
  int32_t begin(int32_t node) const { return lazy_ ? lazy_->begin(node) : index_.offset[node]; }
  int32_t end(int32_t node) const { return lazy_ ? lazy_->end(node) : index_.offset[node + 1]; }
  bool is_accept(int32_t node) const {
    return lazy_ ? lazy_->is_accept(node) : topology_->is_accept(node);
  }
  int32_t start_weight(int32_t node) const { return lazy_ ? -1 : topology_->start_weight(node); }

  int32_t node_of(int32_t node) const { return node < num_nodes_ ? node : node - num_nodes_; }

  LatticeEnd<T> end_of(int32_t id, int32_t index) const {
    return {id, index, index < 0 ? T{0} : weight_[index]};
  }

  [[gnu::always_inline]] Reached& enter(int32_t node, double score) {
    if (slot_[node] < 0) {
      slot_[node] = static_cast<int32_t>(reached_.size());
      reached_.push_back({node, -1, T{0}, score});
    }
    Reached& at = reached_[slot_[node]];
    at.score = std::max(at.score, score);
    return at;
  }

  /// Calls `visit(slot of the index, destination)` for the epsilon arcs of a node, and after the
  /// last frame for its failure arc if the node backs off at the end of the string. After that only
  /// arcs that end the string are left: see failure.h.
  template <class Visit>
  void for_epsilons(int32_t reached, const Visit& visit) {
    if (!failures_) [[likely]] {
      prepare(reached);
      for (int32_t k = begin(reached); k < end(reached) && index_.label[k] == kEpsilon; ++k)
        visit(k, index_.dst[k]);
      return;
    }
    const int32_t node = node_of(reached);
    const bool is_ending = reached != node, ends = failures_->ends(node);
    const Failures::ArcSlots at = failures_->slots(node);
    if (is_last_ && !ends && failures_->can_end(node))
      visit(at.failure, index_.dst[at.failure] + num_nodes_);
    for (int32_t k = at.epsilon; k < at.label; ++k)
      if (!is_ending)
        visit(k, index_.dst[k]);
      else if (ends && failures_->ends(index_.dst[k]))
        visit(k, index_.dst[k] + num_nodes_);
  }

  bool has_epsilons(int32_t node) {
    if (!failures_) [[likely]] {
      prepare(node);
      const int32_t first = begin(node);
      return first < end(node) && index_.label[first] == kEpsilon;
    }
    bool has_any = false;
    for_epsilons(node, [&](int32_t, int32_t) { has_any = true; });
    return has_any;
  }

  /// Takes the arcs of all active nodes at a frame.
  void step(const T* row, int32_t labels, double beam) {
    for (const Reached& old : reached_) slot_[old.node] = -1;
    reached_.clear();
    frame_arcs_.clear();
    matches_.clear();
    double best = kNegInf;
    for (const Active& from : front_) {
      prepare(from.node);
      for (int32_t k = begin(from.node), last = end(from.node); k < last; ++k) {
        const int32_t label = index_.label[k];
        if (label < 0) continue;
        if (label >= labels) break;
        best = std::max(best, take(from, k, weight_[index_.arc[k]] + row[label]));
      }
    }
    num_plain_ = frame_arcs_.size();
    if (failures_)
      for (const Active& from : front_)
        best = std::max(best, back_off(from, row, labels, best - beam));
    const double limit = best - beam;
    for (const FrameArc& s : frame_arcs_)
      if (!(s.score < limit)) enter(s.node, s.score);
  }

  /// Takes the arc of a slot, and returns the score of the path.
  double take(const Active& from, int32_t slot, T weight) {
    const double score = from.score + static_cast<double>(weight);
    if (!(score > kNegInf)) return kNegInf;
    frame_arcs_.push_back({from.id, index_.dst[slot], index_.arc[slot], weight, score});
    __builtin_prefetch(&slot_[index_.dst[slot]]);
    return score;
  }

  /// Takes the rest arcs of an active node, and the arcs of the nodes that it backs off to, for
  /// labels that are not matched before. Leaves out nodes whose arcs are all below `limit`.
  double back_off(const Active& from, const T* row, int32_t labels, double limit) {
    double best = kNegInf;
    matched_by_.resize(static_cast<size_t>(labels), -1);
    const double highest = *std::max_element(row, row + labels);
    T weight{0};  // of the failure arcs
    const auto match = [&](int32_t slot, int32_t label) {
      const double score = take(from, slot, weight_[index_.arc[slot]] + row[label] + weight);
      matches_.resize(frame_arcs_.size() - num_plain_, {label, from.node});
      best = std::max(best, score);
    };
    for (int32_t node = from.node; node >= 0; node = failures_->parent(node)) {
      const Failures::ArcSlots at = failures_->slots(node);
      const double bound = from.score + static_cast<double>(weight) + peak(node) + highest;
      if (node != from.node && !(bound < limit))
        for (int32_t k = at.label; k < at.end && index_.label[k] < labels; ++k)
          if (const int32_t l = index_.label[k]; matched_by_[l] != from.id) match(k, l);
      for (int32_t k = at.label; k < at.end && index_.label[k] < labels; ++k)
        matched_by_[index_.label[k]] = from.id;
      for (int32_t k = at.rest; k < at.failure; ++k)
        for (int32_t l = 0; l < labels; ++l)
          if (matched_by_[l] != from.id) match(k, l);
      if (at.rest < at.failure) break;
      if (at.failure < at.epsilon) weight += weight_[index_.arc[at.failure]];
    }
    return best;
  }

  /// The highest weight of the arcs that leave a node.
  double peak(int32_t node) {
    if (peak_.empty()) peak_.resize(slot_.size(), std::numeric_limits<double>::quiet_NaN());
    double& out = peak_[node];
    if (std::isnan(out)) {
      out = kNegInf;
      for (int32_t k = index_.offset[node]; k < index_.offset[node + 1]; ++k)
        out = std::max(out, static_cast<double>(weight_[index_.arc[k]]));
    }
    return out;
  }

  /// Follows epsilon arcs, prunes nodes unless the frame was the last, and adds to the lattice.
  void finish_frame(int32_t frame, bool is_last) {
    is_last_ = is_last;
    follow_epsilons(is_last ? kNegInf : least_score());
    choose_active(is_last);
    keep_best_paths();
    number_kept();
    for (size_t k = 0; k < frame_arcs_.size(); ++k) {
      const FrameArc& s = frame_arcs_[k];
      const int32_t at = slot_[s.node];
      if (at < 0 || reached_[at].id < 0) continue;
      lattice_.arcs.push_back({s.src, reached_[at].id, s.arc, frame, s.weight});
      if (!failures_) continue;
      if (k < num_plain_)
        lattice_.matches.push_back({topology_->ilabel()[s.arc], topology_->src()[s.arc]});
      else
        lattice_.matches.push_back(matches_[k - num_plain_]);
    }
    for (const EpsilonArc& link : epsilon_arcs_) {
      lattice_.arcs.push_back({link.src, link.dst, link.arc, -1, link.weight});
      if (failures_) lattice_.matches.push_back({kEpsilon, topology_->src()[link.arc]});
    }
    require_size(kOp, "arcs", lattice_.arcs.size());
  }

  /// The score below which nodes are pruned by the beam or by max_active.
  double least_score() {
    scores_.clear();
    for (const Reached& at : reached_) scores_.push_back(at.score);
    if (scores_.empty()) return kNegInf;
    double least = *std::ranges::max_element(scores_) - pruning_.beam;
    if (const auto most = static_cast<size_t>(pruning_.max_active); most < scores_.size()) {
      std::ranges::nth_element(scores_, scores_.begin() + static_cast<ptrdiff_t>(most) - 1,
                               std::greater());
      least = std::max(least, scores_[most - 1]);
    }
    return least;
  }

  /// Raises the score of every node to the best path that may end with epsilon arcs. Epsilon arcs
  /// with scores below `limit` are not followed.
  void follow_epsilons(double limit) {
    std::deque<int32_t> waiting;
    const auto wait = [&](int32_t at) {
      if (!std::exchange(reached_[at].is_waiting, true)) waiting.push_back(at);
    };
    for (size_t i = 0; i < reached_.size(); ++i)
      if (!(reached_[i].score < limit) && has_epsilons(reached_[i].node))
        wait(static_cast<int32_t>(i));
    while (!waiting.empty()) {
      const int32_t from = waiting.front();
      waiting.pop_front();
      reached_[from].is_waiting = false;
      for_epsilons(reached_[from].node, [&](int32_t k, int32_t dst) {
        const T weight = weight_[index_.arc[k]];
        const double score = reached_[from].score + static_cast<double>(weight);
        if (!(score > kNegInf) || score < limit) return;
        const int32_t known = slot_[dst];
        if (known >= 0 && !improves(from, known, weight, score)) return;
        Reached& to = enter(dst, score);
        to.parent = from;
        to.parent_weight = weight;
        if (has_epsilons(to.node)) wait(slot_[to.node]);
      });
    }
  }

  /// Whether an epsilon arc improves the best path of a node that was reached before. Ties: the arc
  /// from the smallest node. Throws if it closes a cycle of positive weight.
  bool improves(int32_t from, int32_t to, T weight, double score) const {
    const Reached& known = reached_[to];
    if (score < known.score) return false;
    const bool is_tie = score == known.score;
    if (is_tie && (known.parent < 0 || reached_[known.parent].node <= reached_[from].node))
      return false;
    double sum = static_cast<double>(weight);
    for (int32_t at = from; at >= 0; at = reached_[at].parent) {
      if (at == to) {
        require(is_tie || !(sum > 0.0), kOp,
                "a cycle of epsilon arcs must not have a positive weight, but one through node ",
                node_of(known.node), " has ", sum);
        return false;
      }
      sum += static_cast<double>(reached_[at].parent_weight);
    }
    return true;
  }

  void choose_active(bool is_last) {
    const double limit = is_last ? kNegInf : least_score();
    active_.clear();
    for (size_t i = 0; i < reached_.size(); ++i)
      if (!(reached_[i].score < limit)) active_.push_back(static_cast<int32_t>(i));
    if (const auto most = static_cast<size_t>(pruning_.max_active);
        !is_last && most < active_.size()) {
      const auto is_better = [&](int32_t a, int32_t b) {
        const Reached &x = reached_[a], &y = reached_[b];
        return x.score != y.score ? x.score > y.score : x.node < y.node;
      };
      std::ranges::nth_element(active_, active_.begin() + static_cast<ptrdiff_t>(most), is_better);
      active_.resize(most);
    }
    for (const int32_t i : active_) reached_[i].is_active = true;
  }

  /// Keeps the active nodes, and the nodes on their best paths over epsilon arcs.
  void keep_best_paths() {
    for (int32_t i : active_)
      for (; i >= 0 && reached_[i].id != kKept; i = reached_[i].parent) reached_[i].id = kKept;
  }

  /// Numbers the kept nodes in topological order of the epsilon arcs, and collects these arcs.
  void number_kept() {
    kept_.clear();
    epsilon_arcs_.clear();
    for (size_t i = 0; i < reached_.size(); ++i)
      if (reached_[i].id == kKept) {
        reached_[i].id = static_cast<int32_t>(kept_.size());
        kept_.push_back(static_cast<int32_t>(i));
      }
    for (const int32_t i : kept_)
      for_epsilons(reached_[i].node, [&](int32_t k, int32_t dst) {
        const int32_t to = slot_[dst];
        const T weight = weight_[index_.arc[k]];
        if (to >= 0 && reached_[to].id >= 0 && weight > kNegInf)
          epsilon_arcs_.push_back({reached_[i].id, reached_[to].id, index_.arc[k], weight});
      });
    if (!epsilon_arcs_.empty()) sort_kept();
    const int32_t first = lattice_.num_nodes;
    front_.clear();
    for (const int32_t i : kept_) {
      Reached& at = reached_[i];
      at.id += first;
      if (at.is_active) front_.push_back({at.node, at.id, at.score});
    }
    for (EpsilonArc& link : epsilon_arcs_) {
      link.src += first;
      link.dst += first;
    }
    require_size(kOp, "nodes", int64_t{first} + static_cast<int64_t>(kept_.size()));
    lattice_.num_nodes = first + static_cast<int32_t>(kept_.size());
  }

  /// Sorts the kept nodes topologically by epsilon arcs. The nodes of a cycle are sorted by the
  /// number of epsilon arcs on their best paths. Arcs that lead back are dropped; no arc of a best
  /// path does.
  void sort_kept() {
    Arrays arrays;
    arrays.num_nodes = static_cast<int32_t>(kept_.size());
    for (const EpsilonArc& link : epsilon_arcs_) {
      arrays.src.push_back(link.src);
      arrays.dst.push_back(link.dst);
    }
    const Topology topology(std::move(arrays));
    const Order& order = topology.order();
    if (order.is_acyclic() && order.nodes.empty()) return;
    std::vector<int32_t> nodes = order.nodes;
    for (size_t c = 0; c + 1 < order.component.size(); ++c) {
      const std::span<int32_t> members(nodes.begin() + order.component[c],
                                       nodes.begin() + order.component[c + 1]);
      if (members.size() == 1) continue;
      std::ranges::sort(members, {}, [&](int32_t n) {
        return std::pair(num_epsilons(kept_[n]), reached_[kept_[n]].node);
      });
    }
    std::vector<int32_t> rank(nodes.size());
    for (size_t p = 0; p < nodes.size(); ++p) rank[nodes[p]] = static_cast<int32_t>(p);
    for (const int32_t i : kept_) reached_[i].id = rank[reached_[i].id];
    for (EpsilonArc& link : epsilon_arcs_)
      link = {rank[link.src], rank[link.dst], link.arc, link.weight};
    std::erase_if(epsilon_arcs_, [](const EpsilonArc& link) { return link.src >= link.dst; });
    std::ranges::stable_sort(epsilon_arcs_, {}, &EpsilonArc::src);
  }

  int32_t num_epsilons(int32_t at) const {
    int32_t count = 0;
    while ((at = reached_[at].parent) >= 0) ++count;
    return count;
  }

  const Topology* topology_ = nullptr;
  LazyComposition* lazy_ = nullptr;
  std::vector<T> lazy_weights_;
  const Failures* failures_;
  const LabelIndex& index_;
  const T* weight_;
  const T* emission_;
  Pruning pruning_;
  int32_t num_nodes_;
  /// The index in `reached_` of each node of the graph, or -1.
  Column slot_;
  std::vector<Reached> reached_;
  std::vector<Active> front_;
  std::vector<FrameArc> frame_arcs_;
  size_t num_plain_ = 0;               // those taken without failure and rest arcs
  std::vector<LatticeMatch> matches_;  // of the others
  std::vector<EpsilonArc> epsilon_arcs_;
  std::vector<int32_t> active_, kept_;
  std::vector<double> scores_;
  SearchLattice<T> lattice_;
  bool is_last_ = false;
  /// The last active node for which each label was matched before a failure arc.
  Column matched_by_;
  Buffer<double> peak_;
};

}  // namespace arcgrad
