#include "arcgrad/algorithms/compose_topologies.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/memory_limit.h"

// Composition of transducers with an epsilon filter (Mohri 2009, "Weighted automata algorithms",
// section 5.1): a breadth-first search over pairs of nodes from the pairs of start nodes, then a
// removal of the pairs with no path to a pair of accept nodes.
//
// The arcs of a pair are found by label: each arc of the node with fewer arcs is looked up among
// the sorted arcs of the other. Where both nodes have epsilon arcs, of all orders in which the two
// paths could take them only one is kept, so that each pair of paths appears once (see Pair).
//
// One of the two graphs may have failure and rest arcs. Each arc of the other one is then looked up
// by failure.h, and an arc of the result stands for the failure arcs that lead to the match and the
// match. At the end of strings failure arcs become epsilon arcs.
//
// Time: O(arcs of the search), apart from the label lookups.

namespace arcgrad {
namespace {

/// The arcs of one node, as slots of a label index.
struct Slots {
  const LabelIndex& index;
  int32_t begin, end;
  int32_t size() const { return end - begin; }
};

/// Calls `emit(a, b)` for the slots `a` of `few` and `b` of `many` whose labels are equal.
template <class Emit>
void match(const Slots& few, const Slots& many, const Emit& emit) {
  const Column& label = few.index.label;
  const Column& other = many.index.label;
  const auto emit_all = [&](int32_t a) {
    int32_t b = many.begin;
    for (int32_t length = many.size(); length > 0;) {
      const int32_t half = (length + 1) / 2;
      b += other[b + half - 1] < label[a] ? half : 0;
      length -= half;
    }
    for (; b < many.end && other[b] == label[a]; ++b) emit(a, b);
  };
  constexpr int32_t kBits = 64;
  if (many.size() > kBits || many.size() > 8 * few.size()) {
    for (int32_t a = few.begin; a < few.end; ++a) emit_all(a);
    return;
  }
  // Most labels of short lists have no match. A set of label residues excludes them without a
  // branch.
  const auto residue = [](int32_t l) { return static_cast<uint32_t>(l) % kBits; };
  uint64_t residues = 0;
  for (int32_t b = many.begin; b < many.end; ++b) residues |= uint64_t{1} << residue(other[b]);
  int32_t candidates[kBits + 1], count = 0;
  for (int32_t a = few.begin; a < few.end; ++a) {
    candidates[count] = a;
    count += static_cast<int32_t>(residues >> residue(label[a]) & 1);
  }
  for (int32_t i = 0; i < count; ++i) emit_all(candidates[i]);
}

/// The nodes that start nodes reach, and their arcs.
class Composition {
 public:
  Composition(std::string_view op, const Topology& first, const Topology& second,
              std::optional<int64_t> max_arcs)
      : op_(op),
        limit_(op, first, second, max_arcs),
        first_(first.index(Side::output)),
        second_(second.index(Side::input)),
        first_accepts_(accept_flags(first)),
        second_accepts_(accept_flags(second)),
        failures1_(find_failures(op, first, Side::output)),
        failures2_(find_failures(op, second, Side::input)),
        ids_(op, first.num_nodes(), second.num_nodes(), failures1_ || failures2_ ? 3 : 2) {
    check_failures(first, second);
    for (const int32_t n1 : first.start()) {
      for (const int32_t n2 : second.start()) ids_[ids_.key({n1, n2})];
      poll_(std::ssize(second.start()));
      check_size();
    }
    num_start_ = ids_.size();
    explore();
  }

  /// The two input arcs that an arc is made of; -1 for an input that takes no arc.
  struct Parents {
    int32_t first, second;
  };

  /// The failure arcs, if one of the graphs has any, and the side of that graph that is matched.
  const Failures* failures() const { return failures1_ ? failures1_ : failures2_; }
  Side failing() const { return failures1_ ? Side::output : Side::input; }
  int32_t num_nodes() const { return ids_.size(); }
  /// Start nodes come first.
  int32_t num_start() const { return num_start_; }
  Pair pair(int32_t node) const { return ids_.pair(node); }
  bool is_accept(int32_t node) const {
    const Pair pair = ids_.pair(node);
    return first_accepts_[pair.first] && second_accepts_[pair.second];
  }
  /// Node n has the arcs [begin(n), begin(n + 1)).
  int32_t begin(int32_t node) const { return offset_[node]; }
  int32_t dst(int32_t arc) const { return dst_[arc]; }
  Parents parents(int32_t arc) const { return parents_[arc]; }

 private:
  static std::vector<bool> accept_flags(const Topology& topology) {
    std::vector<bool> flags(static_cast<size_t>(topology.num_nodes()));
    for (const int32_t n : topology.accept()) flags[n] = true;
    return flags;
  }

  /// How many destinations of a batch are prefetched as they are found: what the cache holds.
  static constexpr size_t kPrefetched = 1024;

  /// Expands nodes in batches, so that data read at random can be prefetched.
  void explore() {
    constexpr int32_t kBatch = 32;
    constexpr size_t kAhead = 32;
    offset_.push_back(0);
    for (int32_t n = 0; n < num_nodes();) {
      const int32_t end = std::min(num_nodes(), n + kBatch);
      prefetch_arcs(n, end);
      targets_.clear();
      for (; n < end; ++n) {
        expand(ids_.pair(n));
        check_size();
        offset_.push_back(static_cast<int32_t>(parents_.size()));
      }
      poll_(kBatch + std::ssize(targets_));
      for (size_t i = 0; i < targets_.size(); ++i) {
        if (i + kAhead >= kPrefetched && i + kAhead < targets_.size())
          ids_.prefetch(targets_[i + kAhead]);
        dst_.push_back(ids_[targets_[i]]);
      }
    }
  }

  void check_size() const { limit_.check(num_nodes(), parents_.size()); }

  void prefetch_arcs(int32_t begin, int32_t end) const {
    for (int32_t n = begin; n < end; ++n) {
      const Pair pair = ids_.pair(n);
      __builtin_prefetch(&first_.offset[pair.first]);
      __builtin_prefetch(&second_.offset[pair.second]);
    }
    for (int32_t n = begin; n < end; ++n) {
      const Pair pair = ids_.pair(n);
      const int32_t a1 = first_.offset[pair.first], a2 = second_.offset[pair.second];
      for (const auto column : {&LabelIndex::label, &LabelIndex::arc, &LabelIndex::dst}) {
        __builtin_prefetch((first_.*column).data() + a1);
        __builtin_prefetch((second_.*column).data() + a2);
      }
    }
  }

  /// Where both paths can take epsilon arcs, those of the first come first: if the second takes one
  /// although the first could have, the first waits, and takes no epsilon arc until both take an
  /// arc together.
  static constexpr uint8_t kFirstWaits = 1;
  /// The end of the string is matched: the graph with failure arcs backs off, or follows epsilon
  /// arcs to an accept node, and the other one stays where it accepts.
  static constexpr uint8_t kEnding = 2;

  void check_failures(const Topology& first, const Topology& second) const {
    require(!failures1_ || !failures2_, op_,
            "only one of the graphs may have failure and rest arcs (phi and rho) that are matched, "
            "but both have them; compose one of them with a graph of labels first");
    require_matched(op_, first, Side::output);
    require_matched(op_, second, Side::input);
  }

  void expand(const Pair& from) {
    if (failures1_ || failures2_) [[unlikely]]
      return expand_failures(from);
    Slots slots1{first_, first_.offset[from.first], first_.offset[from.first + 1]};
    Slots slots2{second_, second_.offset[from.second], second_.offset[from.second + 1]};
    // Slots are sorted and epsilon is the smallest label, so the first and the last slot suffice.
    const bool must_move_alone = !first_accepts_[from.first] &&
                                 (slots1.size() == 0 || first_.label[slots1.end - 1] == kEpsilon);
    take_epsilons(from, slots1, slots2, must_move_alone);
    const auto emit_match = [this](int32_t a1, int32_t a2) {
      emit({first_.arc[a1], second_.arc[a2]}, {first_.dst[a1], second_.dst[a2]});
    };
    if (slots1.size() <= slots2.size())
      match(slots1, slots2, emit_match);
    else
      match(slots2, slots1, [&](int32_t a2, int32_t a1) { emit_match(a1, a2); });
  }

  /// Takes the epsilon arcs, and removes them from the slots.
  void take_epsilons(const Pair& from, Slots& slots1, Slots& slots2, bool must_move_alone) {
    const bool has_epsilon = slots1.size() > 0 && first_.label[slots1.begin] == kEpsilon;
    for (int32_t& a2 = slots2.begin; a2 < slots2.end && second_.label[a2] == kEpsilon; ++a2)
      if (!must_move_alone)
        emit({-1, second_.arc[a2]},
             {from.first, second_.dst[a2], has_epsilon ? kFirstWaits : uint8_t{0}});
    for (int32_t& a1 = slots1.begin; a1 < slots1.end && first_.label[a1] == kEpsilon; ++a1)
      if (from.filter != kFirstWaits) emit({first_.arc[a1], -1}, {first_.dst[a1], from.second});
  }

  void expand_failures(const Pair& from) {
    const bool is_first = failures1_;
    const Failures& failures = is_first ? *failures1_ : *failures2_;
    const LabelIndex &index = failures.index(), &other = is_first ? second_ : first_;
    const int32_t node = is_first ? from.first : from.second;
    const int32_t other_node = is_first ? from.second : from.first;
    const auto take = [&](int32_t arc, int32_t to, int32_t other_arc, int32_t other_to,
                          uint8_t filter = 0) {
      if (is_first)
        emit({arc, other_arc}, {to, other_to, filter});
      else
        emit({other_arc, arc}, {other_to, to, filter});
    };
    const Failures::ArcSlots own = failures.slots(node);
    const bool ends = failures.ends(node), is_ending = from.filter == kEnding;
    if (is_ending && ends) {
      for (int32_t k = own.epsilon; k < own.label; ++k)
        if (failures.ends(index.dst[k])) take(index.arc[k], index.dst[k], -1, other_node, kEnding);
    } else if (!ends && (is_first ? second_accepts_ : first_accepts_)[other_node] &&
               failures.can_end(node)) {
      take(failures.arc(node), failures.parent(node), -1, other_node, kEnding);
    }
    if (is_ending) return;
    Slots slots{index, own.epsilon, own.label};
    Slots other_slots{other, other.offset[other_node], other.offset[other_node + 1]};
    take_epsilons(from, is_first ? slots : other_slots, is_first ? other_slots : slots, false);
    for (int32_t k = other_slots.begin; k < other_slots.end; ++k)
      failures.match(node, other.label[k], [&](int32_t slot) {
        take(index.arc[slot], index.dst[slot], other.arc[k], other.dst[k]);
      });
  }

  void emit(Parents parents, const Pair& to) {
    const PairIds::Key target = ids_.key(to);
    if (targets_.size() < kPrefetched) ids_.prefetch(target);
    targets_.push_back(target);
    parents_.push_back(parents);
  }

  std::string_view op_;
  SearchLimit limit_;
  InterruptPoll poll_;
  const LabelIndex& first_;
  const LabelIndex& second_;
  std::vector<bool> first_accepts_, second_accepts_;
  const Failures* failures1_;
  const Failures* failures2_;
  PairIds ids_;
  int32_t num_start_ = 0;
  PodVector<int32_t> offset_, dst_;
  PodVector<Parents> parents_;
  /// The destinations of the arcs of the current batch.
  std::vector<PairIds::Key> targets_;
};

// The nodes with a path to an accept node. connect() follows incoming arcs instead, whose index
// would take a counting sort of all arcs; these passes read the outgoing arcs as they are stored.

/// Keeps each node with an arc to a kept node, in one pass over the nodes, the last one first.
/// Returns whether any node was added.
bool mark_in_one_pass(const Composition& composition, std::vector<bool>& kept) {
  bool changed = false;
  InterruptPoll poll;
  for (int32_t n = composition.num_nodes(); n-- > 0;) {
    poll();
    if (kept[n]) continue;
    for (int32_t k = composition.begin(n); k < composition.begin(n + 1); ++k)
      if (kept[composition.dst(k)]) {
        kept[n] = changed = true;
        break;
      }
  }
  return changed;
}

/// Keeps all nodes with a path to a kept node, visiting each arc once. A node without an arc to a
/// kept node is put into a list at each of its destinations; when a destination is kept, so is its
/// list.
void mark_by_lists(const Composition& composition, std::vector<bool>& kept) {
  struct Waiting {
    int32_t node, next;
  };
  PodVector<Waiting> waiting;
  Column head(kept.size(), -1), stack;
  InterruptPoll poll;
  for (int32_t n = composition.num_nodes(); n-- > 0;) {
    poll(composition.begin(n + 1) - composition.begin(n));
    for (int32_t k = composition.begin(n); !kept[n] && k < composition.begin(n + 1); ++k) {
      const int32_t dst = composition.dst(k);
      if (!kept[dst]) {
        waiting.push_back({n, std::exchange(head[dst], static_cast<int32_t>(waiting.size()))});
        continue;
      }
      kept[n] = true;
      stack.push_back(n);
    }
    while (!stack.empty()) {
      int32_t w = head[stack.back()];
      stack.pop_back();
      for (; w >= 0; w = waiting[w].next, poll())
        if (!kept[waiting[w].node]) {
          kept[waiting[w].node] = true;
          stack.push_back(waiting[w].node);
        }
    }
  }
}

std::vector<bool> find_coaccessible(const Composition& composition) {
  std::vector<bool> kept(static_cast<size_t>(composition.num_nodes()));
  for (int32_t n = 0; n < composition.num_nodes(); ++n) kept[n] = composition.is_accept(n);
  // After a breadth-first search most arcs lead to later nodes, so a few passes leave little to the
  // lists, which read memory at random.
  constexpr int kPasses = 4;
  for (int i = 0; i < kPasses; ++i)
    if (!mark_in_one_pass(composition, kept)) return kept;
  mark_by_lists(composition, kept);
  return kept;
}

/// Appends the node weights of both inputs that those of the composition add up.
void add_node_weights(const char* op, const Composition& composition, const std::vector<bool>& kept,
                      const Topology& first, const Topology& second, Column& map1, Column& map2) {
  InterruptPoll poll;
  for (int32_t n = 0; n < composition.num_start(); ++n, poll())
    if (kept[n]) {
      map1.push_back(first.start_weight(composition.pair(n).first));
      map2.push_back(second.start_weight(composition.pair(n).second));
    }
  for (int32_t n = 0; n < composition.num_nodes(); ++n, poll())
    if (kept[n] && composition.is_accept(n)) {
      map1.push_back(first.accept_weight(composition.pair(n).first));
      map2.push_back(second.accept_weight(composition.pair(n).second));
    }
  require_size(op, "weights", std::ssize(map1));
}

/// About what an arc of the search takes, with its share of the nodes, and a copy in the result.
constexpr int64_t kBytesPerArc = 64;

}  // namespace

SearchLimit::SearchLimit(std::string_view op, const Topology& first, const Topology& second,
                         std::optional<int64_t> max_arcs)
    : op_(op),
      first_(first),
      second_(second),
      is_default_(!max_arcs),
      max_arcs_(std::min<int64_t>(max_arcs.value_or(machine_memory() / 2 / kBytesPerArc),
                                  std::numeric_limits<int32_t>::max())) {}

void SearchLimit::fail_size(int64_t num_nodes, int64_t num_arcs) const {
  const auto describe = [](const Topology& t) {
    return text(t.num_nodes(), " nodes and ", t.num_arcs(), " arcs");
  };
  fail(op_, "the search for the common paths may reach at most ", max_arcs_, " arcs",
       is_default_ ? ", which fit into half of the memory" : " (max_arcs)",
       ", but that of a graph of ", describe(first_), " with one of ", describe(second_),
       " reached ", num_arcs, " arcs and ", num_nodes,
       " nodes; compose with a part of one graph first, let labels come before epsilon arcs, "
       "or raise max_arcs");
}

std::vector<Moved> Composed::inputs(const Graph& graph1, const Graph& graph2) const {
  std::vector<Moved> out{{graph1, first}, {graph2, second}};
  for (const ArcMap& map : failures)
    out.push_back({failing == Side::output ? graph1 : graph2, map});
  return out;
}

Composed compose_topologies(const char* op, const Topology& topology1, const Topology& topology2,
                            std::optional<int64_t> max_arcs) {
  require(max_arcs.value_or(0) >= 0, op, "max_arcs must be 0 or more, but it is ",
          max_arcs.value_or(0));
  if ((topology1.has_special_labels(Side::output) || topology2.has_special_labels(Side::input)) &&
      (topology1.has_node_weights() || topology2.has_node_weights()))
    return compose_topologies(op, expanded(topology1), expanded(topology2), max_arcs);
  const Composition composition(op, topology1, topology2, max_arcs);
  const std::vector<bool> kept = find_coaccessible(composition);

  Arrays out;
  Column id(kept.size(), -1);
  size_t num_arcs = 0;
  InterruptPoll poll;
  for (int32_t n = 0; n < composition.num_nodes(); ++n) {
    if (!kept[n]) continue;
    id[n] = out.num_nodes++;
    if (n < composition.num_start()) out.start.push_back(id[n]);
    if (composition.is_accept(n)) out.accept.push_back(id[n]);
    poll(composition.begin(n + 1) - composition.begin(n));
    for (int32_t k = composition.begin(n); k < composition.begin(n + 1); ++k)
      num_arcs += kept[composition.dst(k)];
  }

  const bool is_acceptor = topology1.is_acceptor() && topology2.is_acceptor();
  const auto ilabel = topology1.ilabel(), olabel = topology2.olabel();
  Column map1(num_arcs), map2(num_arcs);
  for (auto* column : {&out.src, &out.dst, &out.ilabel}) column->resize(num_arcs);
  if (!is_acceptor) out.olabel.resize(num_arcs);
  size_t a = 0;
  for (int32_t n = 0; n < composition.num_nodes(); ++n) {
    if (!kept[n]) continue;
    poll(composition.begin(n + 1) - composition.begin(n));
    for (int32_t k = composition.begin(n); k < composition.begin(n + 1); ++k) {
      const int32_t dst = id[composition.dst(k)];
      if (dst < 0) continue;
      const auto [a1, a2] = composition.parents(k);
      out.src[a] = id[n];
      out.dst[a] = dst;
      out.ilabel[a] = a1 < 0 ? kEpsilon : ilabel[a1];
      if (!is_acceptor) out.olabel[a] = a2 < 0 ? kEpsilon : olabel[a2];
      map1[a] = a1;
      map2[a++] = a2;
    }
  }
  Composed composed{{}, ArcMap::identity(), ArcMap::identity(), {}};
  if (composition.failures()) {
    composed.failing = composition.failing();
    const bool is_first = composed.failing == Side::output;
    const auto src = (is_first ? topology1 : topology2).src();
    const auto matched = is_first ? topology2.ilabel() : topology1.olabel();
    const Column &arcs = is_first ? map1 : map2, &others = is_first ? map2 : map1;
    Column& outer = is_first ? out.ilabel : out.olabel;
    // The node of the graph with failure arcs in each node of the result.
    Column node(static_cast<size_t>(out.num_nodes));
    for (int32_t n = 0; n < composition.num_nodes(); ++n)
      if (kept[n]) node[id[n]] = is_first ? composition.pair(n).first : composition.pair(n).second;
    FailureSteps steps(num_arcs);
    for (size_t k = 0; k < num_arcs; ++k, poll()) {
      if (arcs[k] < 0) continue;
      steps.add(*composition.failures(), node[out.src[k]], src[arcs[k]], k);
      if (!outer.empty())
        outer[k] = resolved_label(outer[k], others[k] < 0 ? kEpsilon : matched[others[k]]);
    }
    composed.failures = std::move(steps).maps();
  }
  if (out.ilabel == out.olabel) out.olabel = Column();
  out.has_node_weights = topology1.has_node_weights() || topology2.has_node_weights();
  if (out.has_node_weights)
    add_node_weights(op, composition, kept, topology1, topology2, map1, map2);
  composed.arrays = std::move(out);
  composed.first = ArcMap::gather(std::move(map1));
  composed.second = ArcMap::gather(std::move(map2));
  return composed;
}

}  // namespace arcgrad
