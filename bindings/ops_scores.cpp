// Bindings of the scores, with their documentation.

#include "ops.h"

namespace arcgrad::bindings {
namespace {

Graph posteriors(const Graph& graph, const Graph& wrt, const std::string& semiring) {
  const Semiring kind = to_semiring("arc_posteriors", semiring);
  return wrt ? arc_posteriors(graph, wrt, kind) : arc_posteriors(graph, kind);
}

}  // namespace

void init_score_ops(nb::module_& m) {
  def_score(m, "forward_score", [](const auto& graph) { return forward_score(graph); }, R"(
The log-sum-exp of the scores of all accepted paths: the log partition function.

.. math:: \log \sum_{p \in G} e^{s(p)}

Args:
    graph: A graph, or a list of graphs. It may have cycles if the sum over them converges.

Returns:
    A float64 scalar graph; read its value with :meth:`Graph.item`. ``-inf`` if no path is accepted.

Raises:
    ValueError: If a weight is NaN or +inf, or the sum over a cycle diverges; the message names the
        arc, or the nodes of the cycle and their spectral radius.

Gradient: the posterior probability of each arc. Time and memory: O(nodes + arcs). Each strongly
connected component is a linear system, solved by elimination: its time is about linear for rings,
and O(n^3) for n nodes that are densely connected, of which there may be at most 4096.

>>> import arcgrad as ag
>>> round(ag.forward_score(ag.linear_graph(1, 2)).item(), 4)
0.6931
)");
  def_score(m, "viterbi_score", [](const auto& graph) { return viterbi_score(graph); }, R"(
The score of the best accepted path.

.. math:: \max_{p \in G} s(p)

Args:
    graph: A graph, or a list of graphs. It may have cycles without positive weight.

Returns:
    A float64 scalar graph; ``-inf`` if no path is accepted.

Raises:
    ValueError: If a weight is NaN or +inf, or a cycle has a positive weight.

Gradient: the number of times the best path uses each arc; of equally good paths, the one that
:func:`viterbi_path` returns. Time and memory: O(nodes + arcs); on cycles, the time is O(nodes * arcs) at
worst.

>>> import arcgrad as ag
>>> ag.viterbi_score(ag.linear_graph(1, 2, [0.5, 1.5])).item()
1.5
)");
  def_score(m, "viterbi_path", [](const auto& graph) { return viterbi_path(graph); }, R"(
The best accepted path as a chain graph, epsilon arcs and weights included.

Ties: the path with the smallest arc ids, where the first difference decides and the end of a path
precedes any arc. Inside a strongly connected component the path with fewer arcs wins first.

Args:
    graph: A graph, or a list of graphs. It may have cycles without positive weight.

Returns:
    A chain; a graph without nodes if no path is accepted.

Raises:
    ValueError: If a weight is NaN or +inf, or a cycle has a positive weight.

Gradient: each arc of the path passes its gradient to the arc it came from.

>>> import arcgrad as ag
>>> ag.viterbi_path(ag.linear_graph(2, 2, [[0, 1], [3, 2]])).labels_to_list()
[1, 0]
)");
  def_op<Flag, const std::string&>(
      m, "shortest_distance",
      [](const Graph& graph, bool reverse, const std::string& semiring) {
        return shortest_distance(graph, reverse, to_semiring("shortest_distance", semiring));
      },
      R"(
The score of all paths from the start nodes to each node, or from each node to the accept nodes.

Args:
    graph: A graph, or a list of graphs.
    reverse: Score the paths from each node to the accept nodes instead.
    semiring: ``"log"`` sums over paths, ``"tropical"`` takes the best.

Returns:
    A float64 graph with one arc per node of ``graph``, labelled with the node. ``-inf`` where there
    is no path.

Raises:
    ValueError: If a weight is NaN or +inf, or the paths to a node have no finite sum or no best.

Gradient: exact to second order; in the tropical semiring along one best path.

>>> import arcgrad as ag
>>> g = ag.chain_graph([0, 1], weights=[0.5, 1.0])
>>> ag.shortest_distance(g, semiring="tropical").weights_to_list()
[0.0, 0.5, 1.5]
>>> ag.shortest_distance(g, reverse=True).weights_to_numpy().round(6).tolist()
[1.5, 1.0, 0.0]
)",
      nb::kw_only(), "reverse"_a = false, "semiring"_a = "log");
  m.def(
      "arc_posteriors",
      [](const Graph& graph, const std::string& semiring, const std::optional<Graph>& wrt) {
        const Graph input = graph.snapshot(), factor = wrt ? wrt->snapshot() : Graph(nullptr);
        return run_op("arc_posteriors", [&] { return posteriors(input, factor, semiring); });
      },
      "graph"_a, nb::kw_only(), "semiring"_a = "log", "wrt"_a = nb::none(),
      R"(
The posterior of each arc: the probability that a path uses it, if paths are drawn in proportion to
exp(score).

Args:
    graph: A graph, or a list of graphs. On a cycle the result is the expected number of uses.
    semiring: ``"tropical"`` counts the uses by the best path instead.
    wrt: For a product of a graph with emissions, one of these two factors: the result is about its
        arcs, and the product is not materialized. A path may use an arc of the graph in many frames.

Returns:
    A graph with the topology of ``graph``, or of ``wrt``, and the probabilities as weights; all 0 if
    no path is accepted.

Raises:
    ValueError: As :func:`forward_score` and :func:`viterbi_score`.

Gradient: first order only; it is the Hessian of :func:`forward_score`.

>>> import arcgrad as ag
>>> ag.arc_posteriors(ag.linear_graph(1, 4)).weights_to_list()
[0.25, 0.25, 0.25, 0.25]
>>> emissions, alignments = ag.linear_graph(2, 3), ag.tokens.ctc_graph([1], blank=0)
>>> product = ag.intersect(alignments, emissions)
>>> ag.arc_posteriors(product, wrt=emissions).weights_view().round(2)
array([[0.33, 0.67, 0.  ],
       [0.33, 0.67, 0.  ]], dtype=float32)
)");
  m.def(
      "arc_posteriors",
      [](const std::vector<Graph>& graphs, const std::string& semiring,
         const std::optional<Batch>& wrt) {
        const char* op = "arc_posteriors";
        const std::vector<Graph> inputs = snapshots(graphs);
        const std::vector<Graph> factors =
            wrt ? snapshots(*wrt) : std::vector<Graph>{Graph(nullptr)};
        nb::gil_scoped_release release;
        const size_t size = batch_size(op, inputs.size(), factors.size());
        require(size == inputs.size(), op, "there must be one wrt per graph, ", inputs.size(),
                " in all, or one for all, but there are ", factors.size());
        return map_batch(op, size, [&](size_t i) {
          return posteriors(inputs[i], factors[factors.size() == 1 ? 0 : i], semiring);
        });
      },
      "graph"_a, nb::kw_only(), "semiring"_a = "log", "wrt"_a = nb::none());
  m.def(
      "outer_score",
      [](const Batch& graphs, const Batch& emissions, std::optional<int64_t> window, int64_t stride,
         int64_t dilation, const std::string& semiring) {
        const char* op = "outer_score";
        require(!window || *window >= 1, op, "the window must be 1 frame or more, but it is ",
                window.value_or(0));
        const int32_t size = window ? to_int32(op, "the window", *window) : 0;
        const int32_t step = to_int32(op, "the stride", stride);
        const int32_t spread = to_int32(op, "the dilation", dilation);
        const Semiring kind = to_semiring(op, semiring);
        const std::vector<Graph> first = snapshots(graphs), second = snapshots(emissions);
        return run_op(op, [&] { return outer_score(first, second, size, step, spread, kind); });
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "window"_a = nb::none(), "stride"_a = 1,
      "dilation"_a = 1, "semiring"_a = "log", R"(
The scores of all graphs composed with all emissions, or all windows of them.

Equal to ``forward_score(compose(graph, window))`` for every graph and window, but no composed graph
is built.

Args:
    graphs: Graphs whose output labels are matched; epsilon arcs must form no cycle. They may have
        failure and rest arcs.
    emissions: Dense linear graphs.
    window: The number of frames of a window; by default each of the emissions is one window.
    stride: The number of frames from the start of one window to the start of the next.
    dilation: The number of frames from one frame of a window to the next.
    semiring: ``"log"`` for forward scores, ``"tropical"`` for Viterbi scores.

Returns:
    A float64 dense linear graph with one row per window, in the order of the emissions, and one
    column per graph. Emissions of ``T`` frames have
    ``(T - dilation * (window - 1) - 1) // stride + 1`` windows, none if they are shorter. ``-inf``
    where no path is accepted.

Raises:
    ValueError: If a weight is NaN or +inf, epsilon arcs form a cycle, or the emissions are not dense
        linear graphs.

Gradient: exact to second order, for the graphs and the emissions; in the tropical semiring along one
best path.

>>> import arcgrad as ag
>>> kernels = [ag.tokens.ctc_graph([1]), ag.tokens.ctc_graph([2])]
>>> ag.outer_score(kernels, ag.linear_graph(6, 3), window=2, stride=2).weights_view().shape
(3, 2)
)");
  m.def(
      "sequence_loss",
      [](const Graph& graph, const Graph& emissions, Flag normalize) {
        const Graph a = graph.snapshot(), b = emissions.snapshot();
        return run_op("sequence_loss", [&] { return sequence_loss(a, b, normalize); });
      },
      "graph"_a, "emissions"_a, "normalize"_a = true, R"(
The loss of a graph of alignments: the forward score of the emissions minus the forward score of
their intersection with the graph.

Equal to ``subtract(forward_score(emissions), forward_score(intersect(graph, emissions)))``, but it
reads the emissions once, and :func:`backward` writes their gradient once. If the graph accepts no
path of the emissions, the loss is ``inf`` and its gradient is zero.

Args:
    graph: An acceptor, or a list of acceptors.
    emissions: The emissions, most often a :func:`linear_graph`, or a list of them.
    normalize: If false, the loss leaves out the forward score of the emissions, which is zero if
        they are log-probabilities.

Returns:
    A graph with one arc, or a list of them.

Raises:
    ValueError: As :func:`intersect` and :func:`forward_score`.

Gradient and time: as for these scores.

>>> import arcgrad as ag
>>> emissions = ag.linear_graph(4, 3)
>>> loss = ag.sequence_loss(ag.tokens.ctc_graph([1, 2]), emissions)
>>> round(loss.item(), 4)  # 15 of 81 sequences of labels
1.6864
)");
  m.def(
      "sequence_loss",
      [](const Batch& graph, const Batch& emissions, Flag normalize) {
        const std::vector<Graph> a = snapshots(graph), b = snapshots(emissions);
        return run_op("sequence_loss", [&] { return sequence_loss(a, b, normalize); });
      },
      "graph"_a, "emissions"_a, "normalize"_a = true);
}

}  // namespace arcgrad::bindings
