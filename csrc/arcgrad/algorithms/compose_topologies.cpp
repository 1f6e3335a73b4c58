#include "arcgrad/algorithms/compose_topologies.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/composition_search.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

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
        first_(first.index(Side::output)),
        second_(second.index(Side::input)),
        failures1_(find_failures(op, first, Side::output)),
        failures2_(find_failures(op, second, Side::input)),
        search_(op, first, second, failures1_ || failures2_ ? 3 : 2, max_arcs) {
    check_failures(first, second);
    search_.explore([this](int32_t begin, int32_t end) { prefetch_arcs(begin, end); },
                    [this](const Pair& from) { expand(from); });
  }

  /// The failure arcs, if one of the graphs has any, and the side of that graph that is matched.
  const Failures* failures() const { return failures1_ ? failures1_ : failures2_; }
  Side failing() const { return failures1_ ? Side::output : Side::input; }
  const CompositionSearch& search() const { return search_; }

 private:
  void prefetch_arcs(int32_t begin, int32_t end) const {
    for (int32_t n = begin; n < end; ++n) {
      const Pair pair = search_.pair(n);
      __builtin_prefetch(&first_.offset[pair.first]);
      __builtin_prefetch(&second_.offset[pair.second]);
    }
    for (int32_t n = begin; n < end; ++n) {
      const Pair pair = search_.pair(n);
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
    const bool must_move_alone = !search_.accepts_first(from.first) &&
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
    } else if (!ends &&
               (is_first ? search_.accepts_second(other_node)
                         : search_.accepts_first(other_node)) &&
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

  void emit(CompositionSearch::Parents parents, const Pair& to) { search_.add(parents, to); }

  std::string_view op_;
  const LabelIndex& first_;
  const LabelIndex& second_;
  const Failures* failures1_;
  const Failures* failures2_;
  CompositionSearch search_;
};

/// Appends the node weights of both inputs that those of the composition add up.
void add_node_weights(const char* op, const CompositionSearch& search, const Topology& first,
                      const Topology& second, AcceptedPaths& paths) {
  InterruptPoll poll;
  const auto add = [&](const Column& nodes, auto weight) {
    for (const int32_t n : nodes) {
      poll();
      const Pair pair = search.pair(paths.nodes[n]);
      paths.first.push_back((first.*weight)(pair.first));
      paths.second.push_back((second.*weight)(pair.second));
    }
  };
  add(paths.arrays.start, &Topology::start_weight);
  add(paths.arrays.accept, &Topology::accept_weight);
  require_size(op, "weights", std::ssize(paths.first));
}

}  // namespace

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
  const CompositionSearch& search = composition.search();
  AcceptedPaths paths = find_accepted_paths(search);
  Arrays& out = paths.arrays;
  const size_t num_arcs = out.src.size();
  InterruptPoll poll;
  const auto select = [&](std::span<const int32_t> label, const Column& arcs) {
    Column labels(num_arcs);
    for (size_t k = 0; k < num_arcs; ++k) labels[k] = arcs[k] < 0 ? kEpsilon : label[arcs[k]];
    poll(std::ssize(labels));
    return labels;
  };
  out.ilabel = select(topology1.ilabel(), paths.first);
  if (!topology1.is_acceptor() || !topology2.is_acceptor())
    out.olabel = select(topology2.olabel(), paths.second);

  Composed composed{{}, ArcMap::identity(), ArcMap::identity(), {}};
  if (composition.failures()) {
    composed.failing = composition.failing();
    const bool is_first = composed.failing == Side::output;
    const auto src = (is_first ? topology1 : topology2).src();
    const auto matched = is_first ? topology2.ilabel() : topology1.olabel();
    const Column& arcs = is_first ? paths.first : paths.second;
    const Column& others = is_first ? paths.second : paths.first;
    Column& outer = is_first ? out.ilabel : out.olabel;
    FailureSteps steps(num_arcs);
    for (size_t k = 0; k < num_arcs; ++k, poll()) {
      if (arcs[k] < 0) continue;
      const Pair from = search.pair(paths.nodes[out.src[k]]);
      steps.add(*composition.failures(), is_first ? from.first : from.second, src[arcs[k]], k);
      if (!outer.empty())
        outer[k] = resolved_label(outer[k], others[k] < 0 ? kEpsilon : matched[others[k]]);
    }
    composed.failures = std::move(steps).maps();
  }
  if (out.ilabel == out.olabel) out.olabel = Column();
  out.has_node_weights = topology1.has_node_weights() || topology2.has_node_weights();
  if (out.has_node_weights) add_node_weights(op, search, topology1, topology2, paths);
  composed.arrays = std::move(out);
  composed.first = ArcMap::gather(std::move(paths.first));
  composed.second = ArcMap::gather(std::move(paths.second));
  return composed;
}

}  // namespace arcgrad
