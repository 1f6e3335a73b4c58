#include "arcgrad/tokens/alignments.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/remove.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Builds alignment graphs directly from a target, without composing it with the token graph.
//
// An occurrence is a pair (node of the target, token label that enters it); parallel arcs with the
// same label into a node are one occurrence. Each occurrence gets one node per counted frame, and
// each node of the target gets the blank nodes that the rules need there. Arcs then follow locally:
// stay in a token, move to a blank, or enter the next token. The result has the same paths as the
// input side of compose(tokens.graph(), target) without epsilon arcs, in O(nodes + arcs) time.
//
// A target is a Sequence or a Lattice: two classes with the same members.

namespace arcgrad {
namespace {

/// Consecutive ids from `begin` up to but not including `end`.
struct Range {
  int32_t begin = 0, end = 0;
};

/// A target that is one label sequence: occurrence i goes from node i to node i + 1.
class Sequence {
 public:
  explicit Sequence(std::span<const int32_t> labels) : labels_(labels) {}
  int32_t num_nodes() const { return num_occurrences() + 1; }
  int32_t num_occurrences() const { return static_cast<int32_t>(labels_.size()); }
  bool is_start(int32_t node) const { return node == 0; }
  bool is_accept(int32_t node) const { return node == num_occurrences(); }
  bool has_out(int32_t node) const { return node < num_occurrences(); }
  Range occurrences(int32_t node) const { return {std::max(node - 1, 0), node}; }
  int32_t label(int32_t occurrence) const { return labels_[occurrence]; }
  Range arcs(int32_t occurrence) const { return {occurrence, occurrence + 1}; }
  int32_t source(int32_t arc) const { return arc; }
  int32_t original(int32_t) const { return -1; }

 private:
  std::span<const int32_t> labels_;
};

/// A target that is a connected acceptor without epsilon arcs, with nodes in topological order of
/// its strongly connected components.
class Lattice {
 public:
  explicit Lattice(const Topology& t)
      : topology_(t), is_start_(t.num_nodes()), is_accept_(t.num_nodes()), has_out_(t.num_nodes()) {
    const int32_t num_nodes = t.num_nodes();
    const Order& order = t.order();
    std::vector<int32_t> position(static_cast<size_t>(num_nodes));
    for (int32_t p = 0; p < num_nodes; ++p) position[order.node(p)] = p;
    for (int32_t n : t.start()) is_start_[position[n]] = true;
    for (int32_t n : t.accept()) is_accept_[position[n]] = true;

    const auto labels = t.ilabel();
    const Adjacency& in = t.in();
    std::vector<std::tuple<int32_t, int32_t, int32_t>> entering;  // label, source, arc
    for (int32_t p = 0; p < num_nodes; ++p) {
      const int32_t n = order.node(p);
      entering.clear();
      for (int32_t k = in.offset[n]; k < in.offset[n + 1]; ++k) {
        const int32_t arc = in.arc(k);
        entering.emplace_back(labels[arc], position[in.node[k]], arc);
      }
      std::ranges::sort(entering);
      for (const auto& [label, source, arc] : entering) {
        if (label_.size() == static_cast<size_t>(first_occurrence_.back()) ||
            label_.back() != label) {
          label_.push_back(label);
          first_arc_.push_back(static_cast<int32_t>(source_.size()));
        }
        source_.push_back(source);
        arc_.push_back(arc);
        has_out_[source] = true;
      }
      first_occurrence_.push_back(static_cast<int32_t>(label_.size()));
    }
    first_arc_.push_back(static_cast<int32_t>(source_.size()));
  }

  int32_t num_nodes() const { return static_cast<int32_t>(first_occurrence_.size()) - 1; }
  int32_t num_occurrences() const { return static_cast<int32_t>(label_.size()); }
  bool is_start(int32_t node) const { return is_start_[node]; }
  bool is_accept(int32_t node) const { return is_accept_[node]; }
  bool has_out(int32_t node) const { return has_out_[node]; }
  Range occurrences(int32_t node) const {
    return {first_occurrence_[node], first_occurrence_[node + 1]};
  }
  int32_t label(int32_t occurrence) const { return label_[occurrence]; }
  Range arcs(int32_t occurrence) const {
    return {first_arc_[occurrence], first_arc_[occurrence + 1]};
  }
  int32_t source(int32_t arc) const { return source_[arc]; }
  /// The arc of the target graph.
  int32_t original(int32_t arc) const { return arc_[arc]; }
  bool has_node_weights() const { return topology_.has_node_weights(); }
  /// The indices of node weights of the target graph, or -1.
  int32_t start_weight(int32_t node) const {
    return topology_.start_weight(topology_.order().node(node));
  }
  int32_t accept_weight(int32_t node) const {
    return topology_.accept_weight(topology_.order().node(node));
  }

 private:
  const Topology& topology_;
  std::vector<bool> is_start_, is_accept_, has_out_;
  std::vector<int32_t> first_occurrence_{0}, label_, first_arc_, source_, arc_;
};

/// Builds the alignment graph of a target.
template <class Target>
class Aligner {
 public:
  Aligner(const char* op, const Tokens::Rules& rules, const Target& target)
      : rules_(rules),
        target_(target),
        least_blanks_(std::max(rules.gap.least, 1)),
        first_(static_cast<size_t>(target.num_occurrences())),
        blanks_(static_cast<size_t>(target.num_nodes())) {
    number_nodes(op);
    mark_ends();
    size_t num_arcs = 0, capacity = 0;
    std::array<int32_t*, 3> columns;
    const auto resize = [&](size_t size) {
      require_size(op, "arcs", static_cast<int64_t>(num_arcs));
      arrays.src.resize(size);
      arrays.dst.resize(size);
      arrays.ilabel.resize(size);
      columns = {arrays.src.data(), arrays.dst.data(), arrays.ilabel.data()};
      if (is_lattice) taken.resize(size);
      capacity = size;
    };
    InterruptPoll poll;
    // CTC needs about two and a half arcs per node.
    resize(3 * static_cast<size_t>(arrays.num_nodes) + 8);
    each_arc([&](int32_t src, int32_t dst, int32_t label, int32_t arc) {
      if (num_arcs == capacity) [[unlikely]] {
        poll(static_cast<int64_t>(num_arcs));
        resize(2 * capacity);
      }
      columns[0][num_arcs] = src;
      columns[1][num_arcs] = dst;
      columns[2][num_arcs] = label;
      if (is_lattice) taken[num_arcs] = arc;
      ++num_arcs;
    });
    resize(num_arcs);
    if constexpr (is_lattice) {
      arrays.has_node_weights = target_.has_node_weights();
      if (arrays.has_node_weights)
        for (const Column* weights : {&start_weights_, &accept_weights_})
          taken.insert(taken.end(), weights->begin(), weights->end());
    }
  }

  Arrays arrays;
  /// For a lattice: for each weight, that of the target which it takes, or -1.
  Column taken;

 private:
  static constexpr bool is_lattice = std::is_same_v<Target, Lattice>;

  /// The blank nodes at a node of the target; -1 if absent.
  struct Blanks {
    int32_t start = -1;  // before the first frame
    int32_t lead = -1;   // any number of blanks before the first token
    Range counted;       // one node per blank since the last token
    int32_t run = -1;    // further blanks, with a self-loop
    bool has_own_lead() const { return lead >= 0 && lead != run; }
  };

  void number_nodes(const char* op) {
    int64_t next = 0;
    const bool counts_all = rules_.gap.is_limited();
    for (int32_t node = 0; node < target_.num_nodes(); ++node) {
      const Range here = target_.occurrences(node);
      for (int32_t o = here.begin; o < here.end; ++o) {
        first_[o] = static_cast<int32_t>(next);
        next += rules_.duration(target_.label(o)).num_counted();
      }
      const bool leaves = target_.has_out(node), accepts = target_.is_accept(node);
      const bool is_entered = here.begin < here.end;
      const bool starts = target_.is_start(node) && (leaves || accepts);
      Blanks& blanks = blanks_[node];
      if (starts && rules_.blank != Blank::optional) blanks.start = static_cast<int32_t>(next++);
      if (!rules_.has_blank()) continue;
      if (starts && counts_all) blanks.lead = static_cast<int32_t>(next++);
      if (is_entered && leaves) {
        blanks.counted.begin = static_cast<int32_t>(next);
        next += counts_all ? rules_.gap.most : least_blanks_ - 1;
        blanks.counted.end = static_cast<int32_t>(next);
      }
      // A token may follow the run only if the number of blanks has no upper limit.
      if (counts_all ? is_entered && accepts : is_entered || starts)
        blanks.run = static_cast<int32_t>(next++);
      if (starts && !counts_all) blanks.lead = blanks.run;
    }
    require_size(op, "nodes", next);
    arrays.num_nodes = static_cast<int32_t>(next);
  }

  void mark_ends() {
    for (int32_t node = 0; node < target_.num_nodes(); ++node) {
      const Blanks& blanks = blanks_[node];
      const int32_t start = rules_.blank == Blank::optional ? blanks.lead : blanks.start;
      if (start >= 0) {
        arrays.start.push_back(start);
        if constexpr (is_lattice) start_weights_.push_back(target_.start_weight(node));
      }
      if (!target_.is_accept(node)) continue;
      const Range here = target_.occurrences(node);
      if (rules_.blank != Blank::forced)
        for (int32_t o = here.begin; o < here.end; ++o) accept(ends(o));
      if (!rules_.has_blank() && blanks.start >= 0) arrays.accept.push_back(blanks.start);
      if (blanks.has_own_lead()) arrays.accept.push_back(blanks.lead);
      accept(blanks.counted);
      if (blanks.run >= 0) arrays.accept.push_back(blanks.run);
      if constexpr (is_lattice)
        accept_weights_.resize(arrays.accept.size(), target_.accept_weight(node));
    }
  }

  void accept(Range nodes) {
    for (int32_t n = nodes.begin; n < nodes.end; ++n) arrays.accept.push_back(n);
  }

  /// The nodes in which an occurrence may end.
  Range ends(int32_t occurrence) const {
    const FrameRange& frames = rules_.duration(target_.label(occurrence));
    const int32_t first = first_[occurrence];
    return {first + frames.least - 1, first + frames.num_counted()};
  }

  /// Calls add(src, dst, label, target arc or -1) for every arc, by ascending `dst`.
  template <class Add>
  void each_arc(Add add) const {
    for (int32_t node = 0; node < target_.num_nodes(); ++node) {
      const Range here = target_.occurrences(node);
      for (int32_t o = here.begin; o < here.end; ++o) each_token_arc(o, add);
      each_blank_arc(node, add);
    }
  }

  template <class Add>
  void each_token_arc(int32_t occurrence, Add& add) const {
    const int32_t label = target_.label(occurrence), first = first_[occurrence];
    const Range arcs = target_.arcs(occurrence);
    for (int32_t a = arcs.begin; a < arcs.end; ++a)
      each_entry(target_.source(a), label,
                 [&](int32_t from) { add(from, first, label, target_.original(a)); });
    const FrameRange& frames = rules_.duration(label);
    const int32_t last = first + frames.num_counted() - 1;
    for (int32_t n = first; n < last; ++n) add(n, n + 1, label, -1);
    if (!frames.is_limited()) add(last, last, label, -1);
  }

  /// Calls enter(n) for every node n from which a token that leaves `node` of the target may begin.
  template <class Enter>
  void each_entry(int32_t node, int32_t label, Enter enter) const {
    const Range here = target_.occurrences(node);
    for (int32_t o = here.begin; o < here.end; ++o) {
      if (!rules_.may_touch(target_.label(o), label)) continue;
      const Range from = ends(o);
      for (int32_t n = from.begin; n < from.end; ++n) enter(n);
    }
    const Blanks& blanks = blanks_[node];
    if (!rules_.has_blank()) {
      if (blanks.start >= 0) enter(blanks.start);
      return;
    }
    if (blanks.has_own_lead()) enter(blanks.lead);
    for (int32_t n = blanks.counted.begin + least_blanks_ - 1; n < blanks.counted.end; ++n)
      enter(n);
    if (!rules_.gap.is_limited() && blanks.run >= 0) enter(blanks.run);
  }

  template <class Add>
  void each_blank_arc(int32_t node, Add& add) const {
    const Blanks& blanks = blanks_[node];
    const auto add_blank = [&](int32_t src, int32_t dst) { add(src, dst, rules_.blank_label, -1); };
    const auto add_run = [&](int32_t run) {
      if (run == blanks.lead && blanks.start >= 0) add_blank(blanks.start, run);
      add_blank(run, run);
    };
    const auto leave_tokens = [&](int32_t blank) {
      const Range here = target_.occurrences(node);
      for (int32_t o = here.begin; o < here.end; ++o) {
        const Range from = ends(o);
        for (int32_t n = from.begin; n < from.end; ++n) add_blank(n, blank);
      }
    };
    if (blanks.has_own_lead()) add_run(blanks.lead);
    const auto [begin, end] = blanks.counted;
    if (begin < end) leave_tokens(begin);
    for (int32_t n = begin + 1; n < end; ++n) add_blank(n - 1, n);
    if (blanks.run < 0) return;
    if (begin < end)
      add_blank(end - 1, blanks.run);
    else
      leave_tokens(blanks.run);
    add_run(blanks.run);
  }

  const Tokens::Rules& rules_;
  const Target& target_;
  const int32_t least_blanks_;  // between tokens, if there are any
  std::vector<int32_t> first_;  // the node of the first frame of each occurrence
  std::vector<Blanks> blanks_;  // of each node of the target
  // For a lattice: the weights of the target that those of start and accept nodes take.
  Column start_weights_, accept_weights_;
};

Graph align(const char* op, const Tokens::Rules& rules, std::span<const int32_t> target,
            bool calc_grad, DType dtype) {
  require_size(op, "nodes", static_cast<int64_t>(target.size()) + 1);
  for (size_t i = 0; i < target.size(); ++i)
    if (!rules.is_token(target[i]))
      fail(op, "a label of the target must be ", rules.describe_tokens(), ", but label ", i, " is ",
           target[i]);
  const Sequence sequence(target);
  Aligner aligner(op, rules, sequence);
  const auto num_arcs = static_cast<int64_t>(aligner.arrays.src.size());
  return {std::make_shared<Topology>(std::move(aligner.arrays)), Weights::zeros(num_arcs, dtype),
          calc_grad};
}

std::vector<Graph> align(const char* op, const Tokens::Rules& rules, const Sequences& targets,
                         bool calc_grad, DType dtype) {
  constexpr int64_t kArcsPerLabel = 8;
  return map_batch(
      op, targets.size(), [&](size_t i) { return align(op, rules, targets[i], calc_grad, dtype); },
      kArcsPerLabel * static_cast<int64_t>(targets.labels.size()));
}

Tokens::Rules ctc_rules(const char* op, int32_t blank, int32_t num_labels) {
  require(blank >= 0, op, "the blank must be 0 or more, but it is ", blank);
  require(blank < num_labels, op, "the blank must be one of the ", num_labels,
          " labels, but it is ", blank);
  Tokens::Rules rules;
  rules.num_labels = num_labels;
  rules.blank = Blank::optional;
  rules.blank_label = blank;
  rules.separates_repeats = true;
  return rules;
}

}  // namespace

Graph alignment_graph(const Tokens& tokens, std::span<const int32_t> target, bool calc_grad,
                      DType dtype) {
  return align("alignment_graph", tokens.rules(), target, calc_grad, dtype);
}

std::vector<Graph> alignment_graph(const Tokens& tokens, const Sequences& targets, bool calc_grad,
                                   DType dtype) {
  return align("alignment_graph", tokens.rules(), targets, calc_grad, dtype);
}

Graph alignment_graph(const Tokens& tokens, const Graph& target, bool outputs) {
  const char* op = "alignment_graph";
  const Topology& t = target.topology();
  require(
      outputs || t.is_acceptor(), op,
      "a target graph must be an acceptor, but it is a transducer; pass outputs=True, or project "
      "it first");
  const auto labels = t.ilabel();
  bool has_epsilon = false;
  for (size_t a = 0; a < labels.size(); ++a) {
    has_epsilon |= labels[a] == kEpsilon;
    require(labels[a] != kEpsilon || t.olabel()[a] == kEpsilon, op,
            "an arc of the target with an output label must have a token as input label, but arc ",
            a, " has epsilon and the output label ", t.olabel()[a]);
    if (labels[a] != kEpsilon && !tokens.rules().is_token(labels[a]))
      fail(op, "a label of the target must be ", tokens.rules().describe_tokens(),
           ", but the label of arc ", a, " is ", labels[a]);
  }
  const Graph connected =
      has_epsilon ? remove_epsilons(op, target, Semiring::log) : connect(target);
  const Lattice lattice(connected.topology());
  Aligner aligner(op, tokens.rules(), lattice);
  if (outputs) {
    const auto of_target = connected.topology().olabel();
    Column& olabel = aligner.arrays.olabel;
    olabel.assign(aligner.arrays.src.size(), kEpsilon);
    for (size_t k = 0; k < olabel.size(); ++k)
      if (aligner.taken[k] >= 0) olabel[k] = of_target[aligner.taken[k]];
  }
  return record_moves(op, std::move(aligner.arrays),
                      {{connected, ArcMap::gather(std::move(aligner.taken))}});
}

Graph ctc_graph(std::span<const int32_t> target, int32_t blank, int32_t num_labels, bool calc_grad,
                DType dtype) {
  const char* op = "ctc_graph";
  return align(op, ctc_rules(op, blank, num_labels), target, calc_grad, dtype);
}

std::vector<Graph> ctc_graph(const Sequences& targets, int32_t blank, int32_t num_labels,
                             bool calc_grad, DType dtype) {
  const char* op = "ctc_graph";
  return align(op, ctc_rules(op, blank, num_labels), targets, calc_grad, dtype);
}

}  // namespace arcgrad
