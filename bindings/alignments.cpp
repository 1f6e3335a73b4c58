#include "arcgrad/tokens/alignments.h"

#include "common.h"

namespace arcgrad::bindings {
namespace {

/// What `build` makes of the labels of one target or of several.
template <class Build>
nb::object of_labels(const char* op, nb::handle target, nb::handle lengths, Build build) {
  const Labels labels = to_labels(op, "the target", target, lengths);
  if (!labels.is_list) return nb::cast(build(labels.sequences[0]));
  std::vector<Graph> graphs;
  {
    nb::gil_scoped_release release;
    graphs = build(labels.sequences);
  }
  return nb::cast(std::move(graphs));
}

/// Whether the target is a graph or a list of graphs.
bool is_graph(nb::handle target) {
  if (nb::isinstance<Graph>(target)) return true;
  if (!nb::isinstance<nb::list>(target) && !nb::isinstance<nb::tuple>(target)) return false;
  return nb::len(target) > 0 && nb::isinstance<Graph>(nb::object(nb::borrow(target)[0]));
}

nb::object of_graphs(const Tokens& tokens, nb::handle target, bool outputs) {
  const char* op = "alignment_graph";
  Batch batch;
  if (!nb::try_cast(target, batch) || !batch.wrong_type.empty())
    throw nb::type_error(
        "alignment_graph: a list of targets must hold graphs only or labels only, but it holds "
        "both");
  const std::vector<Graph> targets = snapshots(op, batch);
  std::vector<Graph> graphs;
  {
    nb::gil_scoped_release release;
    const auto align = [&](const Graph& graph) { return alignment_graph(tokens, graph, outputs); };
    graphs = batch.is_list ? map(op, align, targets) : std::vector<Graph>{align(targets[0])};
  }
  return batch.is_list ? nb::cast(std::move(graphs)) : nb::cast(graphs[0]);
}

}  // namespace

void init_alignments(nb::module_& m) {
  m.def(
      "alignment_graph",
      [](const Tokens& tokens, nb::handle target, nb::handle lengths, Flag outputs, Flag calc_grad,
         nb::handle dtype) {
        const char* op = "alignment_graph";
        if (is_graph(target)) {
          require(lengths.is_none(), op, "lengths are for labels, but the target is a graph");
          require(!calc_grad && dtype.is_none(), op,
                  "calc_grad and dtype are for labels, but the target is a graph, which has them");
          return of_graphs(tokens, target, outputs);
        }
        require(!outputs, op, "outputs are those of a graph, but the target is given by labels");
        const DType kind = dtype.is_none() ? DType::float32 : to_dtype(op, dtype);
        return of_labels(op, target, lengths, [&](const auto& targets) {
          return alignment_graph(tokens, targets, calc_grad, kind);
        });
      },
      "tokens"_a, "target"_a, nb::kw_only(), "lengths"_a = nb::none(), "outputs"_a = false,
      "calc_grad"_a = false, "dtype"_a = nb::none(), R"(
The alignments of a target: a graph of all frames that spell it.

It has the same paths as the input side of ``compose(tokens.graph(), target)`` without epsilon arcs,
but is built directly, with its nodes in the order of the target.

Args:
    tokens: How frames spell tokens, a :class:`Tokens`.
    target: The labels of the target, which may be none; or a graph that accepts the token sequences
        that count as the target, with weights, epsilon arcs and cycles as you like. Several targets
        are a list of these, a matrix with one target in each row, or one vector of all labels with
        ``lengths``.
    lengths: How many labels each target has, for the rows of a padded matrix or the parts of a
        vector.
    outputs: The target graph may be a transducer, and so is the result: the first frame of a token
        puts out what the arc of the target does, the others put out nothing.
    calc_grad: Whether backward computes gradients for the arcs. Only for labels, as is ``dtype``.
    dtype: The type of the weights, which are all 0; float32 if not given.

Returns:
    A graph, or a list of graphs. That of a target graph has its weights, dtype and gradient: an arc
    that enters a token weighs as much as the arc of the target with that token.

Raises:
    ValueError: If a label is no token, or lengths do not fit the target; the message names it. If a
        target graph is a transducer, and outputs are not asked for.

Gradient: each arc of a target graph collects that of the arcs that took its weight. Time and memory:
O(nodes + arcs) of the result. Where several tokens end at a node of a target graph, each of them has
an arc to each token that may follow.

>>> import arcgrad as ag
>>> tokens = ag.tokens.Tokens.ctc(4)
>>> alignments = ag.tokens.alignment_graph(tokens, [1, 2])
>>> sorted(set(alignments.labels_to_list()))
[0, 1, 2]
>>> lattice = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([3])])  # either will do
>>> emissions = ag.linear_graph(2, 4)
>>> score = ag.forward_score(ag.intersect(ag.tokens.alignment_graph(tokens, lattice), emissions))
>>> round(score.item(), 4)  # log 4: 12, 33, 30, 03
1.3863
)");
  m.def(
      "ctc_graph",
      [](nb::handle target, int64_t blank, nb::handle lengths, std::optional<int64_t> num_labels,
         Flag calc_grad, nb::handle dtype) {
        const char* op = "ctc_graph";
        const DType kind = to_dtype(op, dtype);
        const int32_t label = to_int32(op, "the blank", blank);
        const int32_t end =
            num_labels ? to_int32(op, "the number of labels", *num_labels) : kUnlimited;
        return of_labels(op, target, lengths, [&](const auto& targets) {
          return ctc_graph(targets, label, end, calc_grad, kind);
        });
      },
      "target"_a, "blank"_a = 0, nb::kw_only(), "lengths"_a = nb::none(),
      "num_labels"_a = nb::none(), "calc_grad"_a = false, "dtype"_a = "float32", R"(
The alignments of a target under connectionist temporal classification (CTC).

Every label lasts one frame or more, blanks may stand anywhere, and between equal labels one blank
must. The same as :func:`alignment_graph` with :meth:`Tokens.ctc`, for any number of labels.

Args:
    target: The labels of the target, which may be none. Several targets are a list of these, a
        matrix with one target in each row, or one vector of all labels with ``lengths``.
    blank: The label of the blank.
    lengths: How many labels each target has, for the rows of a padded matrix or the parts of a
        vector.
    num_labels: How many labels there are, if labels should be checked.
    calc_grad: Whether backward computes gradients for the arcs.
    dtype: The type of the weights, which are all 0.

Returns:
    A graph with ``2 * len(target) + 1`` nodes, or a list of graphs.

Raises:
    ValueError: If a label is negative or is the blank, or lengths do not fit the target; the message
        names it.

>>> import arcgrad as ag
>>> ag.tokens.ctc_graph([1, 2], blank=0).num_nodes()
5
>>> emissions = ag.linear_graph(2, 3)
>>> round(ag.forward_score(ag.intersect(ag.tokens.ctc_graph([1]), emissions)).item(), 4)  # log 3
1.0986
>>> [graph.num_nodes() for graph in ag.tokens.ctc_graph([[1, 2], [1, 0]], lengths=[2, 1])]
[5, 3]
)");
}

}  // namespace arcgrad::bindings
