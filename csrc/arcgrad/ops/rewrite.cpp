#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/difference.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/subsets.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

// Context-dependent rewrite rules (Kaplan and Kay 1994, "Regular models of phonological rule
// systems"; Mohri and Sproat 1996, "An efficient compiler for weighted rewrite rules"). Those
// compose transducers that insert, check and delete markers. Here the transducer is built in one
// search, state by state, by what the markers mean:
//
//   At each place of the string, if the left context ends here, and a string of the rule followed
//   by the right context begins here, the rule must be applied; otherwise a label is copied.
//
// A match that reads nothing is an insertion. As with the markers, there is at most one at a place,
// before a match that reads labels, and none where a match has just ended.
//
// A state holds what is known at a place:
//   left     the nodes of the left context that suffixes of the text before the place lead to;
//   place    outside of the rule, or the node of the rule that was reached;
//   matches  the nodes of the rule, followed by the right context, that are reached from places
//            where a label was copied although the left context ended there. Reaching the end
//            means that the rule should have been applied, so the path ends there;
//   promises sets of nodes of the right context, one for each application whose right context is
//            not complete yet. All must be fulfilled.
// Sets are states of Subsets. No state guesses the future, so a rule without alternatives gives a
// transducer that leaves few paths open.
//
// From left to right, the left context is compared with the output, whose text before the place is
// rewritten already; simultaneously, with the input. From right to left is the mirror image.

namespace arcgrad {
namespace {

constexpr char kOp[] = "rewrite";

/// The input side of the rule, followed by the right context. The nodes of the rule occur three
/// times: where an insertion may end, where a label was read, and where one must be read.
TopologyPtr rule_and_context(const Topology& rule, const Topology& right) {
  const int32_t num = rule.num_nodes();
  require_size(kOp, "nodes", 3 * int64_t{num} + right.num_nodes());
  Arrays arrays;
  arrays.num_nodes = 3 * num + right.num_nodes();
  arrays.start.assign(rule.start().begin(), rule.start().end());
  const auto add = [&](int32_t src, int32_t dst, int32_t label) {
    arrays.src.push_back(src);
    arrays.dst.push_back(dst);
    arrays.ilabel.push_back(label);
  };
  for (int32_t a = 0; a < rule.num_arcs(); ++a)
    for (int32_t copy = 0; copy < 3; ++copy) {
      const int32_t label = rule.ilabel()[a], to = label == kEpsilon ? copy : 1;
      add(copy * num + rule.src()[a], to * num + rule.dst()[a], label);
    }
  for (int32_t a = 0; a < right.num_arcs(); ++a)
    add(3 * num + right.src()[a], 3 * num + right.dst()[a], right.ilabel()[a]);
  for (const int32_t n : right.accept()) arrays.accept.push_back(3 * num + n);
  for (const int32_t from : rule.accept())
    for (const int32_t to : right.start())
      for (int32_t copy = 0; copy < 2; ++copy) add(copy * num + from, 3 * num + to, kEpsilon);
  return std::make_shared<Topology>(std::move(arrays));
}

class Rewriter {
 public:
  /// `left`, `right` and the rule are mirrored to rewrite from right to left.
  Rewriter(TopologyPtr rule, TopologyPtr left, TopologyPtr right, std::span<const int32_t> labels,
           const Rewriting& rewriting)
      : rule_(std::move(rule)),
        labels_(labels),
        is_obligatory_(rewriting.is_obligatory),
        is_mirrored_(rewriting.order == RuleOrder::right_to_left),
        reads_output_(rewriting.order != RuleOrder::simultaneous),
        max_arcs_(rewriting.max_arcs),
        left_(kOp, std::move(left), max_sets()),
        right_(kOp, right, max_sets()),
        matches_(kOp, rule_and_context(*rule_, *right), max_sets()) {
    const std::span<const int32_t> starts = rule_->start();
    Subsets inputs(kOp, rule_, max_sets());
    inserts_ = inputs.accepts(inputs.start());
    Column must_read(starts.size());
    std::ranges::transform(starts, must_read.begin(),
                           [&](int32_t n) { return 2 * rule_->num_nodes() + n; });
    match_ = matches_.start();
    reading_match_ = matches_.state_of(must_read);
    promise_ = right_.start();
    promises_.emplace_back();
    promise_ids_.emplace(promises_[0], 0);
    arrays_.start = {id({after(left_.start(), is_mirrored_ ? kEnd : kBegin), kReady, 0, 0})};
    for (int32_t s = 0; s < static_cast<int32_t>(states_.size()); ++s) expand(s);
    arrays_.num_nodes = static_cast<int32_t>(states_.size());
  }

  /// `arcs` has the arcs of the graph that the arcs of the rule come from.
  Graph record(const Graph& graph, std::span<const int32_t> arcs, const Graph& left,
               const Graph& right) && {
    SymbolTablePtr table;
    for (const Graph& input : {graph, left, right})
      for (const Side side : {Side::input, Side::output})
        table = joined(kOp, table, input.topology().symbols().of(side));
    arrays_.symbols = {table, table};
    auto all = std::make_shared<const Topology>(std::move(arrays_));
    const Connected& kept = connected(*all);
    TopologyPtr topology = kept.topology ? kept.topology : all;
    Column from(static_cast<size_t>(topology->num_arcs()));
    for (size_t k = 0; k < from.size(); ++k) {
      const int32_t arc = arcs_[kept.topology ? kept.arcs[k] : k];
      from[k] = arc < 0 || arcs.empty() ? arc : arcs[arc];
    }
    if (is_mirrored_)
      topology = std::make_shared<Topology>(topology, Topology::Change{.is_reversed = true});
    return record_moves(kOp, std::move(topology),
                        {{graph, ArcMap::gather(std::move(from))},
                         {left, ArcMap::gather({})},
                         {right, ArcMap::gather({})}});
  }

 private:
  /// The places: outside of the rule, where a match may begin, or only one that reads a label; else
  /// kInside + 3 * node of the rule + progress.
  static constexpr int32_t kReady = 0, kApplied = 1, kInside = 2;
  enum Progress : int32_t { kMayEnd, kHasRead, kMustRead };
  struct State {
    int32_t left, place, matches, promises;
    bool operator==(const State&) const = default;
  };
  struct StateHash {
    size_t operator()(const State& state) const {
      uint64_t hash = 0;
      for (const int32_t part : {state.left, state.place, state.matches, state.promises})
        hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15u + (hash >> 29);
      return hash;
    }
  };

  int64_t max_sets() const { return std::max<int64_t>(max_arcs_, 1'000'000); }

  int32_t id(const State& state) {
    const auto [at, is_new] = ids_.emplace(state, static_cast<int32_t>(states_.size()));
    if (is_new) states_.push_back(state);
    return at->second;
  }

  /// The left context after a label, with its start nodes.
  int32_t after(int32_t left, int32_t label) {
    return left_.joined(left_.next(left, label), left_.start());
  }

  void add_arc(int32_t src, const State& to, int32_t ilabel, int32_t olabel, int32_t arc) {
    arrays_.src.push_back(src);
    arrays_.dst.push_back(id(to));
    arrays_.ilabel.push_back(ilabel);
    arrays_.olabel.push_back(olabel);
    arcs_.push_back(arc);
    const auto count = static_cast<int64_t>(arcs_.size());
    require(count <= max_arcs_, kOp, "the result may have at most max_arcs = ", max_arcs_,
            " arcs, but it has more");
    poll_();
  }

  /// The promises after a label; -1 if one is broken. Fulfilled promises are dropped.
  int32_t keep_promises(int32_t promises, int32_t label) {
    if (promises == 0) return 0;
    std::vector<int32_t> next;
    for (const int32_t state : promises_[promises]) {
      const int32_t to = right_.next(state, label);
      if (to == Subsets::kEmpty) return -1;
      if (!right_.accepts(to)) next.push_back(to);
    }
    return promise_id(std::move(next));
  }
  int32_t promise_id(std::vector<int32_t> promises) {
    std::ranges::sort(promises);
    promises.erase(std::unique(promises.begin(), promises.end()), promises.end());
    const auto [at, is_new] =
        promise_ids_.emplace(std::move(promises), static_cast<int32_t>(promises_.size()));
    if (is_new) promises_.push_back(at->first);
    return at->second;
  }

  /// Reads an input label: `state` gets the new matches and promises. False if the path ends.
  bool read(State& state, int32_t label) {
    state.matches = matches_.next(state.matches, label);
    state.promises = keep_promises(state.promises, label);
    return state.promises >= 0 && !matches_.accepts(state.matches);
  }

  void expand(int32_t s) {
    State from = states_[s];
    if (from.place >= kInside) return expand_rule(s, from);
    if (left_.accepts(from.left)) {
      for (const int32_t n : rule_->start()) {
        State inside = from;
        inside.place = kInside + 3 * n + (from.place == kReady ? kMayEnd : kMustRead);
        if (rule_->is_accept(n)) leave(s, inside, kEpsilon, kEpsilon, -1);
        expand_rule(s, inside);
      }
      if (is_obligatory_)
        from.matches =
            matches_.joined(from.matches, from.place == kReady ? match_ : reading_match_);
      if (matches_.accepts(from.matches)) return;
    }
    State end = from;
    if (read(end, is_mirrored_ ? kBegin : kEnd) && end.promises == 0) arrays_.accept.push_back(s);
    for (const int32_t label : labels_) {
      State to = from;
      to.place = kReady;
      if (!read(to, label)) continue;
      to.left = after(from.left, label);
      add_arc(s, to, label, label, -1);
    }
  }

  /// The arcs of the rule that leave a node of it.
  void expand_rule(int32_t s, const State& from) {
    const int32_t node = (from.place - kInside) / 3, progress = (from.place - kInside) % 3;
    const Adjacency& out = rule_->out();
    for (int32_t k = out.offset[node]; k < out.offset[node + 1]; ++k) {
      const int32_t arc = out.arc(k), dst = out.node[k];
      const int32_t ilabel = rule_->ilabel()[arc], olabel = rule_->olabel()[arc];
      State to = from;
      if (ilabel != kEpsilon && !read(to, ilabel)) continue;
      if (const int32_t text = reads_output_ ? olabel : ilabel; text != kEpsilon)
        to.left = after(from.left, text);
      to.place = kInside + 3 * dst + (ilabel != kEpsilon ? kHasRead : progress);
      if (rule_->is_accept(dst)) leave(s, to, ilabel, olabel, arc);
      if (out.offset[dst] < out.offset[dst + 1]) add_arc(s, to, ilabel, olabel, arc);
    }
  }

  /// Adds an arc to the place behind the rule, if the right context can follow.
  void leave(int32_t s, State to, int32_t ilabel, int32_t olabel, int32_t arc) {
    if ((to.place - kInside) % 3 == kMustRead || promise_ == Subsets::kEmpty) return;
    // Without insertions the two places outside are the same.
    to.place = inserts_ ? kApplied : kReady;
    if (!right_.accepts(promise_)) {
      std::vector<int32_t> promises = promises_[to.promises];
      promises.push_back(promise_);
      to.promises = promise_id(std::move(promises));
    }
    add_arc(s, to, ilabel, olabel, arc);
  }

  TopologyPtr rule_;
  std::span<const int32_t> labels_;
  bool is_obligatory_, is_mirrored_, reads_output_;
  int64_t max_arcs_;
  Subsets left_, right_, matches_;
  bool inserts_ = false;
  /// The states in which a match begins, one that reads a label, and the right context.
  int32_t match_ = 0, reading_match_ = 0, promise_ = 0;
  /// Sets of promises by id; set 0 is empty.
  std::vector<std::vector<int32_t>> promises_;
  std::map<std::vector<int32_t>, int32_t> promise_ids_;
  std::unordered_map<State, int32_t, StateHash> ids_;
  std::vector<State> states_;
  // The result: arcs, and the arcs of the rule that give their weights.
  Arrays arrays_;
  Column arcs_;
  InterruptPoll poll_;
};

}  // namespace

Graph rewrite(const Graph& rule, const Graph& left, const Graph& right, std::vector<int32_t> labels,
              const Rewriting& rewriting) {
  require_no_failures(kOp, rule.topology());
  require_acceptor(kOp, "the left context", left);
  require_acceptor(kOp, "the right context", right);
  require(rewriting.max_arcs >= 0, kOp, "max_arcs must be 0 or more, but it is ",
          rewriting.max_arcs);
  for (const int32_t label : labels)
    require(label >= 0 && label < kBegin, kOp, "the labels must be 0 or more and below ", kBegin,
            ", but one is ", label);
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  const RuleOrder order = rewriting.order;
  const auto read = [&](TopologyPtr topology) {
    if (order != RuleOrder::right_to_left) return topology;
    return TopologyPtr(std::make_shared<Topology>(topology, Topology::Change{.is_reversed = true}));
  };
  const auto [possible, arcs] = possible_arcs(rule);
  TopologyPtr before = read(possible_arcs(left).topology),
              after = read(possible_arcs(right).topology);
  if (order == RuleOrder::right_to_left) before.swap(after);
  return Rewriter(read(possible), std::move(before), std::move(after), labels, rewriting)
      .record(rule, arcs, left, right);
}

}  // namespace arcgrad
