// Bindings of alignment graphs, with their documentation.

#include "arcgrad/tokens/alignments.h"

#include "common.h"

namespace arcgrad::bindings {
namespace {

/// Calls `build` with the labels of one target or of a list of targets.
template <class Build>
nb::object of_labels(const char* op, nb::handle target, nb::handle lengths, Build build) {
  const Labels labels = to_labels(op, "the target", target, lengths);
  if (!labels.is_list) return nb::cast(build(labels.sequences[0]));
  return nb::cast(run_op(op, [&] { return build(labels.sequences); }));
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
  if (!nb::try_cast(target, batch))
    throw nb::type_error(
        "alignment_graph: a list of targets must hold graphs only or labels only, but it holds "
        "both");
  const std::vector<Graph> targets = snapshots(batch);
  const auto align = [&](const Graph& graph) { return alignment_graph(tokens, graph, outputs); };
  std::vector<Graph> graphs = run_op(op, [&] {
    return batch.is_list ? map(op, align, targets) : std::vector<Graph>{align(targets[0])};
  });
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
          require(lengths.is_none(), op,
                  "lengths needs a target given by labels, but the target is a graph");
          require(!calc_grad && dtype.is_none(), op,
                  "calc_grad and dtype need a target given by labels, but the target is a graph");
          return of_graphs(tokens, target, outputs);
        }
        require(!outputs, op, "outputs needs a target graph, but the target is given by labels");
        const DType kind = dtype.is_none() ? DType::float32 : to_dtype(op, dtype);
        return of_labels(op, target, lengths, [&](const auto& targets) {
          return alignment_graph(tokens, targets, calc_grad, kind);
        });
      },
      "tokens"_a, "target"_a, nb::kw_only(), "lengths"_a = nb::none(), "outputs"_a = false,
      "calc_grad"_a = false, "dtype"_a = nb::none(), R"(
Build the alignment graph of a target: the acceptor of all frame labels that collapse to it.

The graph has the same paths as the input side of ``compose(tokens.graph(), target)`` after epsilon
removal, but is built directly, with nodes in the order of the target.

Args:
    tokens: The token rules, a :class:`Tokens`.
    target: The labels of the target (possibly empty), or a graph that accepts all valid token
        sequences; it may have weights, epsilon arcs and cycles. Several targets are a list of these,
        a matrix with one target per row, or one vector of all labels with ``lengths``.
    lengths: The number of labels per target, for a padded matrix or a concatenated vector. For a
        matrix also a mask of bools of its shape, true for the labels of each target.
    outputs: Whether the target graph may be a transducer. The first frame of a token then emits the
        output label of the target arc, and later frames emit epsilon.
    calc_grad: Whether backward computes gradients for the arcs. For label targets only, as is
        ``dtype``.
    dtype: The type of the weights, which are all 0; float32 by default.

Returns:
    A graph, or a list of graphs. For a target graph, the result takes over its dtype and weights,
    with gradients: an arc that enters a token has the weight of the target arc with that token.

Raises:
    ValueError: If a label is not a token or lengths do not match the target; the message names it.
        If a target graph is a transducer and ``outputs`` is False.

Gradient: each arc of a target graph receives the sum of the gradients of the arcs that took its
weight. Time and memory: O(nodes + arcs) of the result. Where several tokens end at a node of a target
graph, each of them gets an arc to each token that may follow.

>>> import arcgrad as ag
>>> tokens = ag.tokens.Tokens.ctc(4)
>>> alignments = ag.tokens.alignment_graph(tokens, [1, 2])
>>> sorted(set(alignments.labels_to_list()))
[0, 1, 2]
>>> lattice = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([3])])  # either is accepted
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
Build the alignment graph of a target under connectionist temporal classification (CTC).

Every label lasts one frame or more, blanks may occur anywhere, and equal labels need a blank between
them. Equivalent to :func:`alignment_graph` with :meth:`Tokens.ctc`, for any number of labels.

Args:
    target: The labels of the target (possibly empty). Several targets are a list of these, a matrix
        with one target per row, or one vector of all labels with ``lengths``.
    blank: The label of the blank.
    lengths: The number of labels per target, for a padded matrix or a concatenated vector. For a
        matrix also a mask of bools of its shape, true for the labels of each target.
    num_labels: The number of labels; if given, labels are checked against it.
    calc_grad: Whether backward computes gradients for the arcs.
    dtype: The type of the weights, which are all 0.

Returns:
    A graph with ``2 * len(target) + 1`` nodes, or a list of graphs.

Raises:
    ValueError: If a label is negative or is the blank, or lengths do not match the target; the
        message names it.

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
