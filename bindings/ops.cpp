#include "arcgrad/ops.h"

#include "common.h"

namespace arcgrad::bindings {
namespace {

/// Binds an op of one graph under one name: for a graph, and for a list of graphs on the pool. The
/// GIL is released while it runs.
template <class... Args, class Op, class... Extra>
void def_op(nb::module_& m, const char* name, Op op, const char* doc, const Extra&... extra) {
  m.def(
      name,
      [op](const Graph& graph, Args... args) {
        const Graph input = graph.snapshot();
        nb::gil_scoped_release release;
        return op(input, args...);
      },
      "graph"_a, extra..., doc);
  m.def(
      name,
      [name, op](const GraphList& graphs, Args... args) {
        const std::vector<Graph> inputs = snapshots(name, graphs);
        nb::gil_scoped_release release;
        return map(name, op, inputs, args...);
      },
      "graph"_a, extra...);
}

/// The same for an op that treats a list as one batch.
template <class Op>
void def_score(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [op](const Graph& graph) {
        const Graph input = graph.snapshot();
        nb::gil_scoped_release release;
        return op(input);
      },
      "graph"_a, doc);
  m.def(
      name,
      [name, op](const GraphList& graphs) {
        const std::vector<Graph> inputs = snapshots(name, graphs);
        nb::gil_scoped_release release;
        return op(inputs);
      },
      "graph"_a);
}

/// The same for an op of two graphs.
template <class Op>
void def_op2(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [op](const Graph& first, const Graph& second) {
        const Graph a = first.snapshot(), b = second.snapshot();
        nb::gil_scoped_release release;
        return op(a, b);
      },
      "first"_a, "second"_a, doc);
  m.def(
      name,
      [name, op](const Batch& first, const Batch& second) {
        const std::vector<Graph> a = snapshots(name, first), b = snapshots(name, second);
        nb::gil_scoped_release release;
        return map2(name, op, a, b);
      },
      "first"_a, "second"_a);
}

/// The same for an op of a list of graphs; a batch is a list of lists.
template <class Op>
void def_op_of_list(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [op](const std::vector<Graph>& graphs) {
        const std::vector<Graph> inputs = snapshots(graphs);
        nb::gil_scoped_release release;
        return op(inputs);
      },
      "graphs"_a, doc);
  m.def(
      name,
      [name, op](const std::vector<std::vector<Graph>>& graphs) {
        std::vector<std::vector<Graph>> inputs;
        for (const auto& list : graphs) inputs.push_back(snapshots(list));
        nb::gil_scoped_release release;
        return map_batch(name, inputs.size(), [&](size_t i) { return op(inputs[i]); });
      },
      "graphs"_a);
}

Graph posteriors(const Graph& graph, const Graph& wrt, const std::string& semiring) {
  const Semiring kind = to_semiring("arc_posteriors", semiring);
  return wrt ? arc_posteriors(graph, wrt, kind) : arc_posteriors(graph, kind);
}

void init_scores(nb::module_& m) {
  def_score(m, "forward_score", [](const auto& graph) { return forward_score(graph); }, R"(
The log-sum of the scores of all accepted paths.

.. math:: \log \sum_{p \in G} e^{s(p)}

Args:
    graph: A graph, or a list of graphs. It may have cycles if the sum over them converges.

Returns:
    A float64 scalar graph; read its value with :meth:`Graph.item`. ``-inf`` if no path is accepted.

Raises:
    ValueError: If a weight is NaN or +inf, or the sum over a cycle diverges; the message names the
        arc, or the nodes of the cycle and their spectral radius.

Gradient: the posterior probability of each arc. Time and memory: O(nodes + arcs), and O(n^3) for
each strongly connected component of n nodes, of which there may be at most 2048.

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

Gradient: how often the best path uses each arc; of equally good paths, that of
:func:`viterbi_path`. Time and memory: O(nodes + arcs); on cycles, the time is O(nodes * arcs) at
worst.

>>> import arcgrad as ag
>>> ag.viterbi_score(ag.linear_graph(1, 2, [0.5, 1.5])).item()
1.5
)");
  def_score(m, "viterbi_path", [](const auto& graph) { return viterbi_path(graph); }, R"(
The best accepted path as a chain graph, epsilon arcs and weights included.

Of equally good paths it is the one with the smallest arc ids, where the first difference decides
and an end comes before any arc. Among nodes that cycles join, fewer arcs decide before that.

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
    reverse: From each node to the accept nodes.
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
        nb::gil_scoped_release release;
        return posteriors(input, factor, semiring);
      },
      "graph"_a, nb::kw_only(), "semiring"_a = "log", "wrt"_a = nb::none(),
      R"(
The probability that a path drawn in proportion to exp(score) uses each arc.

Args:
    graph: A graph, or a list of graphs. On a cycle it is the expected number of uses.
    semiring: ``"tropical"`` counts the uses by the best path instead.
    wrt: For a product of a graph with emissions, one of the two: its arcs are meant, and the product
        is not built. An arc of the graph may be used in many frames.

Returns:
    A graph with the topology of ``graph``, or of ``wrt``, and the probabilities as weights; all 0 if
    no path is accepted.

Raises:
    ValueError: As :func:`forward_score` and :func:`viterbi_score`.

Gradient: first order; it is the Hessian of :func:`forward_score`.

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
      [](const GraphList& graphs, const std::string& semiring, const std::optional<Batch>& wrt) {
        const char* op = "arc_posteriors";
        const std::vector<Graph> inputs = snapshots(op, graphs);
        const std::vector<Graph> factors =
            wrt ? snapshots(op, *wrt) : std::vector<Graph>{Graph(nullptr)};
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
        const std::vector<Graph> first = snapshots(op, graphs), second = snapshots(op, emissions);
        nb::gil_scoped_release release;
        return outer_score(first, second, size, step, spread, kind);
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "window"_a = nb::none(), "stride"_a = 1,
      "dilation"_a = 1, "semiring"_a = "log", R"(
The scores of all graphs composed with all emissions, or all windows of them.

It is ``forward_score(compose(graph, window))`` for every graph and window, computed without building
a graph for each.

Args:
    graphs: Graphs whose output labels are matched; epsilon arcs must form no cycle.
    emissions: Dense linear graphs.
    window: The number of frames of a window; by default each of the emissions is one window.
    stride: The number of frames from the start of one window to that of the next.
    dilation: The number of frames from one frame of a window to the next.
    semiring: ``"log"`` for forward scores, ``"tropical"`` for those of the best paths.

Returns:
    A float64 dense linear graph with one row per window, those of the first emissions first, and
    one column per graph. Emissions of ``T`` frames have
    ``(T - dilation * (window - 1) - 1) // stride + 1`` windows, none if they are shorter. ``-inf``
    where no path is accepted.

Raises:
    ValueError: If a weight is NaN or +inf, epsilon arcs form a cycle, or the emissions are no dense
        linear graphs.

Gradient: exact to second order, for the graphs and the emissions; in the tropical semiring along one
best path.

>>> import arcgrad as ag
>>> kernels = [ag.tokens.ctc_graph([1]), ag.tokens.ctc_graph([2])]
>>> ag.outer_score(kernels, ag.linear_graph(6, 3), window=2, stride=2).weights_view().shape
(3, 2)
)");
}

void init_products(nb::module_& m) {
  def_op2(m, "compose", compose, R"(
The composition: if ``first`` maps x to y and ``second`` maps y to z, the result maps x to z.

Scores add. Each pair of matching paths appears once, however many epsilons there are. The result
has only nodes that lie on an accepted path. ``first @ second`` is the same.

Args:
    first: A graph, or a list of graphs.
    second: A graph, or a list of graphs.

Gradient: each arc passes its gradient to the arcs it was made of. Time and memory: proportional to
the pairs of nodes that can be reached together, and their arcs.

>>> import arcgrad as ag
>>> first = ag.chain_graph([1, 2], [3, 4])
>>> second = ag.chain_graph([3, 4], [5, 6])
>>> result = ag.compose(first, second)
>>> result.labels_to_list(), result.labels_to_list(ilabel=False)
([1, 2], [5, 6])
)");
  def_op2(m, "intersect", intersect, R"(
The intersection of two acceptors: the strings that both accept, with their scores added.

Args:
    first: An acceptor, or a list of acceptors.
    second: An acceptor, or a list of acceptors.

Raises:
    ValueError: If an arc has different labels; :func:`compose` is for transducers.

Gradient, time and memory: as :func:`compose`.

>>> import arcgrad as ag
>>> ag.intersect(ag.linear_graph(2, 3), ag.chain_graph([2, 0])).labels_to_list()
[2, 0]
)");
  m.def(
      "sequence_loss",
      [](const Graph& graph, const Graph& emissions, Flag normalize) {
        const Graph a = graph.snapshot(), b = emissions.snapshot();
        nb::gil_scoped_release release;
        return sequence_loss(a, b, normalize);
      },
      "graph"_a, "emissions"_a, "normalize"_a = true, R"(
The loss of a graph of alignments: the forward score of the emissions minus that of their product.

The same as ``subtract(forward_score(emissions), forward_score(intersect(graph, emissions)))`` in
one pass over the emissions, and over their gradient in :func:`backward`.

Args:
    graph: An acceptor, or a list of acceptors.
    emissions: The emissions, most often a :func:`linear_graph`, or a list of them.
    normalize: Whether the score of the emissions counts; else the loss is minus the score of the
        product, as for emissions that are log-probabilities.

Returns:
    A graph with one arc, or a list of them.

Raises:
    ValueError: As :func:`intersect` and :func:`forward_score`.

Gradient: that of the scores. Time: as these, but memory is read and written once.

>>> import arcgrad as ag
>>> emissions = ag.linear_graph(4, 3)
>>> loss = ag.sequence_loss(ag.tokens.ctc_graph([1, 2]), emissions)
>>> round(loss.item(), 4)  # 15 of 81 sequences of labels
1.6864
)");
  m.def(
      "sequence_loss",
      [](const Batch& graph, const Batch& emissions, Flag normalize) {
        const std::vector<Graph> a = snapshots("sequence_loss", graph),
                                 b = snapshots("sequence_loss", emissions);
        nb::gil_scoped_release release;
        return sequence_loss(a, b, normalize);
      },
      "graph"_a, "emissions"_a, "normalize"_a = true);
}

Pruning to_pruning(double beam, std::optional<int64_t> max_active,
                   std::optional<double> lattice_beam) {
  Pruning pruning;
  pruning.beam = beam;
  pruning.max_active = max_active.value_or(pruning.max_active);
  pruning.lattice_beam = lattice_beam.value_or(pruning.lattice_beam);
  return pruning;
}

void init_decoding(nb::module_& m) {
  m.def(
      "beam_search",
      [](const Graph& graph, const Graph& emissions, double beam, std::optional<int64_t> max_active,
         std::optional<double> lattice_beam) {
        const Pruning pruning = to_pruning(beam, max_active, lattice_beam);
        const Graph first = graph.snapshot(), second = emissions.snapshot();
        nb::gil_scoped_release release;
        return beam_search(first, second, pruning);
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "beam"_a = Pruning{}.beam,
      "max_active"_a = nb::none(), "lattice_beam"_a = nb::none(), R"(
A search through a graph, frame by frame, that drops what falls behind; the result is a lattice.

Without pruning the lattice has the paths of ``compose(emissions, graph)``. Between two frames each
node of the graph that paths have reached has the best score of these paths. Before each frame,
nodes more than ``beam`` below the best are dropped, then all but the ``max_active`` best (of
equals, those with the smallest ids). Nothing is dropped after the last frame. Epsilon arcs are
followed as far as paths stay within both limits among the nodes that the frame itself led to; with
weights of at most 0 that is no further restriction. A dropped node stays where the best path comes
over its epsilon arcs to a node that goes on.

Args:
    graphs: A graph, or a list of graphs. It may have cycles, several starts and accepts, and
        epsilon arcs; its input labels are matched, its output labels are kept.
    emissions: A dense linear graph, or a list of them.
    beam: How far below the best a node may be.
    max_active: The most nodes from which paths go on; None for any number.
    lattice_beam: Arcs on no path within so much of the best path are left out; None keeps all arcs
        on accepted paths.

Returns:
    An acyclic graph in topological order. Each arc is an arc of the graph taken at a frame and has
    the sum of both weights, or is an epsilon arc of the graph between two frames. Impossible arcs
    are left out. A graph without nodes if no accepted path survives.

    Where epsilon arcs form a cycle, only those are kept between two frames that lead away from
    where the best path enters the cycle. So the best path stays, but others may be lost.

Raises:
    ValueError: If a weight is NaN or +inf (the message names the arc, or the label and the frame),
        if the search meets a cycle of epsilon arcs with a positive weight, or if the emissions are
        no dense linear graph.

Gradient: each arc passes its gradient to the arc of the graph and the emission it was made of; what
was dropped gets none. Time: per frame, proportional to the nodes that are left, the arcs that leave
them, and the epsilon arcs that are followed, whatever the size of the graph. ForkSafeOnce per call the
weights are read, and one number per node is set.

>>> import arcgrad as ag
>>> emissions = ag.linear_graph(2, 3, [[0.0, 1.0, -9.0], [0.5, 0.0, -9.0]])
>>> letters = ag.closure(ag.linear_graph(1, 3))
>>> lattice = ag.beam_search(letters, emissions, beam=5.0, lattice_beam=2.0)
>>> ag.viterbi_path(ag.remove(lattice)).labels_to_list()
[1, 0]
)");
  m.def(
      "beam_search",
      [](const Batch& graphs, const Batch& emissions, double beam,
         std::optional<int64_t> max_active, std::optional<double> lattice_beam) {
        const Pruning pruning = to_pruning(beam, max_active, lattice_beam);
        const std::vector<Graph> first = snapshots("beam_search", graphs),
                                 second = snapshots("beam_search", emissions);
        nb::gil_scoped_release release;
        return beam_search(first, second, pruning);
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "beam"_a = Pruning{}.beam,
      "max_active"_a = nb::none(), "lattice_beam"_a = nb::none());
  m.def(
      "best_paths",
      [](const Graph& graph, int64_t n, Flag unique) {
        const Graph input = graph.snapshot();
        nb::gil_scoped_release release;
        return best_paths(input, n, unique);
      },
      "graph"_a, "n"_a, nb::kw_only(), "unique"_a = false, R"(
The best accepted paths as chain graphs, the best first.

Of equally good paths the one with the smallest arc ids comes first, where the first difference
decides and an end comes before any arc; so the first is that of :func:`viterbi_path`.

Args:
    graph: A graph without cycles, or a list of graphs. A product with emissions is built.
    n: The number of paths.
    unique: Of the paths with the same output labels, epsilons left out, take the best only.

Returns:
    A list of chains, shorter than ``n`` if there are fewer paths; for a list of graphs, a list of
    such lists.

Raises:
    ValueError: If the graph has a cycle, a weight is NaN or +inf, or ``n`` is less than 1.

Gradient: each arc of a path passes its gradient to the arc it came from. Time: O(nodes + arcs) for
the best score from each node to the end, and then a best-first search that takes no wrong step:
O(log(n L)) for each of at most n L steps with paths of L arcs, and sorting the arcs of the nodes it
comes to. With ``unique``, a step adds a label to a string and takes the time of all arcs that the
string can reach and that may still be on one of the n paths.

>>> import arcgrad as ag
>>> graph = ag.linear_graph(2, 2, [[0.0, 1.0], [3.0, 2.5]])
>>> [(path.labels_to_list(), ag.viterbi_score(path).item()) for path in ag.best_paths(graph, 2)]
[([1, 0], 4.0), ([1, 1], 3.5)]
)");
  m.def(
      "best_paths",
      [](const GraphList& graphs, int64_t n, Flag unique) {
        const std::vector<Graph> inputs = snapshots("best_paths", graphs);
        nb::gil_scoped_release release;
        return best_paths(inputs, n, unique);
      },
      "graph"_a, "n"_a, nb::kw_only(), "unique"_a = false);
}

void init_rational(nb::module_& m) {
  def_op_of_list(m, "union", union_, R"(
The union: what any of the graphs accepts. ``first + second`` is the same for two.

Args:
    graphs: A list of graphs, or a list of such lists. The union of none accepts nothing.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([0]), ag.chain_graph([1])])
>>> g.num_nodes(), g.labels_to_list()
(4, [0, 1])
)");
  def_op_of_list(m, "concat", concat, R"(
The concatenation: a string of the first graph followed by one of the second, and so on.

Epsilon arcs of weight 0 join every accept node of a graph to every start node of the next. They
come after the arcs of the one and before those of the other.

Args:
    graphs: A list of graphs, or a list of such lists. Concatenating none accepts the empty string.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear, but for
the epsilon arcs.

>>> import arcgrad as ag
>>> ag.concat([ag.chain_graph([0]), ag.chain_graph([1])]).labels_to_list()
[0, -1, 1]
)");
  def_op(m, "closure", closure, R"(
The Kleene closure: any number of strings of the graph after each other, also none.

Node 0 is a new start and accept node; the nodes of ``graph`` follow. Epsilon arcs of weight 0 lead
from it to the old starts and from the old accepts back to it.

Args:
    graph: A graph, or a list of graphs.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear.

>>> import arcgrad as ag
>>> ag.closure(ag.chain_graph([7])).labels_to_list()
[7, -1, -1]
)");
}

void init_weights(nb::module_& m) {
  def_op(m, "negate", negate, R"(
The graph with every weight negated.

Args:
    graph: A graph, or a list of graphs.

>>> import arcgrad as ag
>>> ag.negate(ag.linear_graph(1, 2, [1.0, 2.0])).weights_to_list()
[-1.0, -2.0]
)");
  def_op2(m, "add", add, R"(
The sum of the weights of two graphs of the same structure, arc by arc.

Args:
    first: A graph, or a list of graphs.
    second: A graph, or a list of graphs.

Raises:
    ValueError: If nodes, starts, accepts or arcs differ.

>>> import arcgrad as ag
>>> ag.add(ag.scalar_graph(1.0), ag.scalar_graph(2.0)).item()
3.0
)");
  def_op2(m, "subtract", subtract, R"(
The difference of the weights of two graphs of the same structure, arc by arc.

Args:
    first: A graph, or a list of graphs.
    second: A graph, or a list of graphs.

Raises:
    ValueError: If nodes, starts, accepts or arcs differ.

>>> import arcgrad as ag
>>> ag.subtract(ag.scalar_graph(1.0), ag.scalar_graph(2.0)).item()
-1.0
)");
  def_op<double>(m, "scale", scale, R"(
The graph with every weight multiplied by a number.

Args:
    graph: A graph, or a list of graphs.
    factor: A finite number.

Raises:
    ValueError: If the factor is not finite.

>>> import arcgrad as ag
>>> ag.scale(ag.scalar_graph(1.5), 2).item()
3.0
)",
                 "factor"_a);
}

void init_structure(nb::module_& m) {
  def_op(m, "clone", clone, R"(
A copy that gradients flow through. It shares the topology.

Args:
    graph: A graph, or a list of graphs.

>>> import arcgrad as ag
>>> ag.equal(ag.clone(ag.chain_graph([1])), ag.chain_graph([1]))
True
)");
  def_op(m, "project_input", project_input, R"(
The acceptor of the input labels.

Args:
    graph: A graph, or a list of graphs.

>>> import arcgrad as ag
>>> ag.project_input(ag.chain_graph([1], [2])).labels_to_list(ilabel=False)
[1]
)");
  def_op(m, "project_output", project_output, R"(
The acceptor of the output labels.

Args:
    graph: A graph, or a list of graphs.

>>> import arcgrad as ag
>>> ag.project_output(ag.chain_graph([1], [2])).labels_to_list()
[2]
)");
  def_op(m, "invert", invert, R"(
The graph with input and output labels exchanged.

Args:
    graph: A graph, or a list of graphs.

>>> import arcgrad as ag
>>> ag.invert(ag.chain_graph([1], [2])).labels_to_list()
[2]
)");
  def_op(m, "reverse", reverse, R"(
The graph that accepts every string backwards: arcs turned round, starts and accepts exchanged.

Args:
    graph: A graph, or a list of graphs.

>>> import arcgrad as ag
>>> ag.viterbi_path(ag.reverse(ag.chain_graph([1, 2]))).labels_to_list()
[2, 1]
)");
  def_op(m, "connect", connect, R"(
The graph without the nodes that lie on no accepted path. Arcs of weight ``-inf`` count as arcs.

Args:
    graph: A graph, or a list of graphs.

Time and memory: linear. A graph remembers what is left of its nodes and arcs, so that a second call
with other weights only moves these.

>>> import arcgrad as ag
>>> g = ag.chain_graph([1])
>>> g.add_node()
2
>>> ag.connect(g).num_nodes()
2
)");
  def_op<int64_t, std::optional<int64_t>, const std::string&>(
      m, "remove",
      [](const Graph& graph, int64_t ilabel, std::optional<int64_t> olabel,
         const std::string& semiring) {
        std::optional<int32_t> output;
        if (olabel) output = to_int32("remove", "the output label", *olabel);
        return remove(graph, to_int32("remove", "the input label", ilabel), output,
                      to_semiring("remove", semiring));
      },
      R"(
The graph without arcs of a label, as if they were epsilon arcs; by default without epsilon arcs.

Scores are unchanged: the weight of the removed arcs moves into the arcs before them, or after them
at a start. One epsilon arc may remain to carry the score of the empty string. The result has only
nodes that lie on an accepted path.

Args:
    graph: A graph, or a list of graphs.
    ilabel: Input label of the arcs to remove.
    olabel: Their output label; by default the input label.
    semiring: How several ways over removed arcs become one weight: ``"log"`` or ``"tropical"``.

Raises:
    ValueError: If a weight is NaN or +inf, or the removed arcs have a cycle that diverges.

Gradient: exact to second order. Time and memory: proportional to the pairs of nodes joined by
removed arcs, and the arcs that enter the first of them.

>>> import arcgrad as ag
>>> g = ag.concat([ag.chain_graph([0]), ag.chain_graph([1])])
>>> ag.remove(g).labels_to_list()
[0, 1]
)",
      "ilabel"_a = kEpsilon, "olabel"_a = nb::none(), "semiring"_a = "log");
  def_op<Flag>(m, "arc_sort", arc_sort, R"(
The graph with arcs in order of their source node and label. Never needed for other operations.

Args:
    graph: A graph, or a list of graphs.
    olabel: Order by output label.

>>> import arcgrad as ag
>>> g = ag.Graph.from_arrays([0, 0], [1, 1], [5, 4], start=[0], accept=[1])
>>> ag.arc_sort(g).labels_to_list()
[4, 5]
)",
               "olabel"_a = false);
  def_op(m, "top_sort", top_sort, R"(
The graph with nodes numbered so that every arc leads to a higher number. Arcs keep their order.

Args:
    graph: A graph without cycles, or a list of such graphs.

Raises:
    ValueError: If there is a cycle.

>>> import arcgrad as ag
>>> g = ag.Graph.from_arrays([1], [0], [5], start=[1], accept=[0])
>>> ag.top_sort(g).src_nodes().tolist()
[0]
)");
}

void init_comparison(nb::module_& m) {
  m.def(
      "equal",
      [](const Graph& a, const Graph& b) {
        const Graph first = a.snapshot(), second = b.snapshot();
        nb::gil_scoped_release release;
        return equal(first, second);
      },
      "a"_a, "b"_a, R"(
Whether two graphs have the same nodes, starts, accepts, arcs and weights. The order of arcs and the
dtype do not matter.

>>> import arcgrad as ag
>>> ag.equal(ag.chain_graph([1]), ag.chain_graph([2]))
False
)");
  m.def(
      "isomorphic",
      [](const Graph& a, const Graph& b) {
        const Graph first = a.snapshot(), second = b.snapshot();
        nb::gil_scoped_release release;
        return isomorphic(first, second);
      },
      "a"_a, "b"_a, R"(
Whether two graphs are equal after some renumbering of the nodes.

>>> import arcgrad as ag
>>> ag.isomorphic(ag.reverse(ag.chain_graph([1])), ag.chain_graph([1]))
True
)");
  m.def(
      "rand_equivalent",
      [](const Graph& a, const Graph& b, int64_t num_samples, double tol, int64_t max_length,
         const Seed& seed) {
        const Graph first = a.snapshot(), second = b.snapshot();
        const std::optional<uint64_t> number = to_seed("rand_equivalent", seed);
        nb::gil_scoped_release release;
        return rand_equivalent(first, second, num_samples, tol, max_length, number);
      },
      "a"_a, "b"_a, "num_samples"_a = 100, "tol"_a = 1e-4, "max_length"_a = 1000, nb::kw_only(),
      "seed"_a = nb::none(), R"(
Whether two graphs give the same score to strings of random paths of either.

Args:
    a: A graph.
    b: A graph.
    num_samples: The number of paths to draw, in turn from both graphs. Weights play no part.
    tol: How far two scores may differ.
    max_length: Paths of more arcs are left out.
    seed: Makes the paths repeatable; a whole number between 0 and 2**64 - 1.

Raises:
    ValueError: If all paths that were drawn are left out, so that nothing is known; or if an
        argument is out of range.

>>> import arcgrad as ag
>>> g = ag.concat([ag.chain_graph([0]), ag.chain_graph([1])])
>>> ag.rand_equivalent(g, ag.chain_graph([0, 1]), seed=0)
True
)");
  m.def(
      "sample",
      [](const Graph& graph, int64_t max_length, const Seed& seed) {
        const Graph input = graph.snapshot();
        const std::optional<uint64_t> number = to_seed("sample", seed);
        nb::gil_scoped_release release;
        return sample(input, max_length, number);
      },
      "graph"_a, "max_length"_a = 1000, nb::kw_only(), "seed"_a = nb::none(), R"(
A path drawn with probability exp(score - forward_score), as a chain graph.

Args:
    graph: A graph, or a list of graphs; element i of a list is drawn with ``seed`` + i.
    max_length: The largest number of arcs.
    seed: Makes the path repeatable; a whole number between 0 and 2**64 - 1.

Raises:
    ValueError: If no path is accepted, the drawn path is too long, the seed is out of range, or as
        :func:`forward_score`.

Gradient: each arc of the path passes its gradient to the arc it came from.

>>> import arcgrad as ag
>>> ag.sample(ag.linear_graph(3, 2), seed=0).num_arcs()
3
)");
  m.def(
      "sample",
      [](const GraphList& graphs, int64_t max_length, const Seed& seed) {
        const std::vector<Graph> inputs = snapshots("sample", graphs);
        const std::optional<uint64_t> first = to_seed("sample", seed);
        nb::gil_scoped_release release;
        return map_batch("sample", inputs.size(), [&](size_t i) {
          return sample(inputs[i], max_length, first ? std::optional(*first + i) : first);
        });
      },
      "graph"_a, "max_length"_a = 1000, nb::kw_only(), "seed"_a = nb::none());
}

}  // namespace

void init_ops(nb::module_& m) {
  init_scores(m);
  init_products(m);
  init_decoding(m);
  init_rational(m);
  init_weights(m);
  init_structure(m);
  init_comparison(m);
}

}  // namespace arcgrad::bindings
