// Bindings of the ops on sets of strings and of rewrite rules, with their documentation.

#include "ops.h"

namespace arcgrad::bindings {
namespace {

Rewriting to_rewriting(const std::string& mode, const std::string& direction,
                       std::optional<int64_t> max_arcs) {
  constexpr const char* kOp = "rewrite";
  require(mode == "obligatory" || mode == "optional", kOp,
          "the mode must be 'obligatory' or 'optional', but it is '", mode, "'");
  require(direction == "ltr" || direction == "rtl" || direction == "sim", kOp,
          "the direction must be 'ltr', 'rtl' or 'sim', but it is '", direction, "'");
  Rewriting out;
  out.is_obligatory = mode == "obligatory";
  out.order = direction == "ltr"   ? RuleOrder::left_to_right
              : direction == "rtl" ? RuleOrder::right_to_left
                                   : RuleOrder::simultaneous;
  out.max_arcs = max_arcs.value_or(out.max_arcs);
  return out;
}

using Alphabet = std::vector<int64_t>;

std::vector<int32_t> to_alphabet(const char* op, const Alphabet& labels) {
  std::vector<int32_t> out;
  for (const int64_t label : labels) out.push_back(to_int32(op, "a label", label));
  return out;
}

}  // namespace

void init_rule_ops(nb::module_& m) {
  def_composition(m, "difference", difference, R"(
The difference of two acceptors: the paths of the first whose strings the second does not accept.

Scores are those of the first graph; the weights of the second do not matter, except that arcs of
weight ``-inf`` are absent. The second graph is determinized on demand. The result has only nodes on
accepted paths.

Args:
    first: An acceptor, or a list of acceptors.
    second: An acceptor, or a list of acceptors.
    max_arcs: As for :func:`compose`; also the limit on the sets of nodes of the second graph that
        strings lead to, by default a million and ten times its nodes.

Raises:
    ValueError: If an arc has different labels, or the search exceeds ``max_arcs``.

Gradient: each arc passes its gradient to the arc of the first graph it came from; that of the
second graph is 0. Time and memory: linear in the pairs of nodes that can be reached together, and
in their arcs, if the second graph is deterministic; its subsets may be exponentially many.

>>> import arcgrad as ag
>>> words = ag.union([ag.chain_graph([0]), ag.chain_graph([1])])
>>> ag.difference(words, ag.chain_graph([1])).labels_to_list()
[0]
)");
  def_op<const Alphabet&, std::optional<int64_t>>(
      m, "complement",
      [](const Graph& graph, const Alphabet& labels, std::optional<int64_t> max_arcs) {
        return complement(graph, to_alphabet("complement", labels), max_arcs);
      },
      R"(
The complement of an acceptor: all strings of the given labels that it does not accept, with score 0.

It is the :func:`difference` between all strings and the graph, whose weights do not matter, except
that arcs of weight ``-inf`` are absent.

Args:
    graph: An acceptor, or a list of acceptors.
    labels: The alphabet. Strings with other labels are in neither.
    max_arcs: As for :func:`difference`.

Raises:
    ValueError: If an arc has different labels, a label is epsilon, or the search exceeds
        ``max_arcs``.

Gradient: that of the graph is 0. Time and memory: as :func:`difference`.

>>> import arcgrad as ag
>>> others = ag.complement(ag.chain_graph([1]), [0, 1])
>>> ag.forward_score(ag.intersect(others, ag.chain_graph([1]))).item()
-inf
>>> ag.forward_score(ag.intersect(others, ag.chain_graph([1, 0]))).item()
0.0
)",
      "labels"_a, nb::kw_only(), "max_arcs"_a = nb::none());
  def_composition(m, "cross", cross, R"(
The cross product of two acceptors: maps every string of the first to every string of the second.

Scores add. The arcs of ``first`` come before those of ``second``.

Args:
    first: An acceptor, or a list of acceptors.
    second: An acceptor, or a list of acceptors.
    max_arcs: As for :func:`compose`.

Raises:
    ValueError: If an arc has different labels, or the search exceeds ``max_arcs``.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: as
:func:`compose`.

>>> import arcgrad as ag
>>> result = ag.cross(ag.chain_graph([1, 2]), ag.chain_graph([3]))
>>> result.labels_to_list(), result.labels_to_list(ilabel=False)
([1, 2, -1], [-1, -1, 3])
)");
  def_op<const Graph&, const Graph&, const Alphabet&, const std::string&, const std::string&,
         std::optional<int64_t>>(
      m, "rewrite",
      [](const Graph& rule, const Graph& left, const Graph& right, const Alphabet& labels,
         const std::string& mode, const std::string& direction, std::optional<int64_t> max_arcs) {
        return rewrite(rule, left, right, to_alphabet("rewrite", labels),
                       to_rewriting(mode, direction, max_arcs));
      },
      R"(
A context-dependent rewrite rule as a transducer from all strings of an alphabet.

Wherever a string of ``left`` ends and an input string of ``graph`` begins that a string of
``right`` follows, it is replaced by an output string of ``graph``; everything else is copied.
Places are visited one after another. A rule that reads nothing is applied once at each place.

Args:
    graph: The rule, a transducer, or a list of rules. If it has several outputs or matches of
        different lengths, so has the result.
    left: The left context, an acceptor. Its weights do not matter, except that arcs of weight
        ``-inf`` are absent. It may begin with the label :data:`arcgrad.text.BEGIN`.
    right: The right context. It may end with the label :data:`arcgrad.text.END`.
    labels: The alphabet: the labels that are copied.
    mode: ``"obligatory"``: the rule must be applied wherever it can. ``"optional"``: it may be.
    direction: ``"ltr"``: from left to right, so the left context is compared with what was written
        before. ``"rtl"``: from right to left, so the right context is. ``"sim"``: both contexts are
        compared with the input.
    max_arcs: The most arcs of the result before nodes on no accepted path are dropped; by default
        100 million.

Raises:
    ValueError: If a context is not an acceptor, a label is epsilon, or the result is too large.

Gradient: each arc passes its gradient to the arc of the rule it came from; those of the contexts
are 0. Time and memory: linear in the result, which has an arc per label in most nodes. The nodes are
sets of nodes of the rule and the contexts, which may be exponentially many.

>>> import arcgrad as ag
>>> rule, nothing = ag.chain_graph([0], [1]), ag.chain_graph([])
>>> after_2 = ag.rewrite(rule, ag.chain_graph([2]), nothing, [0, 1, 2])
>>> ag.viterbi_path(ag.compose(ag.chain_graph([0, 2, 0]), after_2)).labels_to_list(ilabel=False)
[0, 2, 1]
)",
      "left"_a, "right"_a, "labels"_a, nb::kw_only(), "mode"_a = "obligatory",
      "direction"_a = "ltr", "max_arcs"_a = nb::none());
}

}  // namespace arcgrad::bindings
