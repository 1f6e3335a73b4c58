// Bindings of normal forms and of the encoder, with their documentation.

#include <nanobind/stl/tuple.h>

#include <numeric>
#include <tuple>

#include "arcgrad/ops/encoder.h"
#include "ops.h"

namespace arcgrad::bindings {
namespace {

/// Whether labels and weights are encoded, and a graph whose arcs are what the codes stand for:
/// encoding it gives the same codes.
using EncoderState = std::tuple<bool, bool, Graph>;

EncoderState state_of(const Encoder& encoder) {
  const auto size = static_cast<size_t>(encoder.size());
  Arrays arrays;
  arrays.num_nodes = 1;
  arrays.src.assign(size, 0);
  arrays.dst.assign(size, 0);
  arrays.ilabel.resize(size);
  std::iota(arrays.ilabel.begin(), arrays.ilabel.end(), 0);
  const Graph codes(std::make_shared<Topology>(std::move(arrays)),
                    Weights::zeros(static_cast<int64_t>(size), DType::float64));
  const Encoder::Table& table = encoder.table();
  return {table.labels, table.weights, run_op("decode", [&] { return decode(codes, encoder); })};
}

void init_encoder(nb::module_& m) {
  nb::class_<Encoder>(m, "Encoder", explained_constructor(), R"(
The table of :func:`encode` and :func:`decode`: which labels and weights a code stands for.

Codes are numbered from 0 in the order of their first arc. Graphs that are encoded with one encoder
have codes in common, so that they can be compared or composed. A copy has the same codes, and those
added to one later are not in the other; a pickle keeps weights without the ops that made them.

>>> import arcgrad as ag
>>> encoder = ag.Encoder()
>>> ag.encode(ag.chain_graph([7, 7, 8], [9, 9, 8]), encoder).labels_to_list()
[0, 0, 1]
>>> len(encoder)
2
)")
      .def(nb::init<Flag, Flag>(), "labels"_a = true, "weights"_a = false, R"(
A new encoder.

Args:
    labels: Encode both labels of an arc. Otherwise the input label is encoded, and the output label
        stays.
    weights: Encode the weight of an arc too; encoded arcs have weight 0.

Raises:
    ValueError: If both are False.
)")
      .def("__len__", &Encoder::size)
      .def("__repr__",
           [](const Encoder& encoder) {
             return "Encoder of " + std::to_string(encoder.size()) + " codes";
           })
      .def("__getstate__", &state_of)
      .def(
          "__reduce__",
          [](nb::handle self) {
            // Without this, pickle protocols 0 and 1 reject extension types.
            return nb::make_tuple(nb::module_::import_("copyreg").attr("__newobj__"),
                                  nb::make_tuple(self.type()), self.attr("__getstate__")());
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", [](Encoder& self, const EncoderState& state) {
        const auto& [labels, weights, meanings] = state;
        Encoder encoder(labels, weights);
        run_op("encode", [&] { return encode(meanings, encoder); });
        new (&self) Encoder(std::move(encoder));
      });
  m.def(
      "encode",
      [](const Graph& graph, const Encoder& encoder) {
        const Graph input = graph.snapshot();
        return run_op("encode", [&] { return encode(input, encoder); });
      },
      "graph"_a, "encoder"_a, R"(
The graph with the two labels of each arc, and possibly its weight, as one label: an acceptor of
codes. Operations on acceptors then apply to transducers, and :func:`decode` gives labels back.

An arc that is epsilon on both sides stays epsilon, unless weights are encoded.

Args:
    graph: A graph, or a list of graphs, which are encoded in order.
    encoder: An :class:`Encoder`, which keeps the codes.

Gradient: each arc passes its gradient to the arc it came from, unless weights are encoded; see
:func:`decode`. Time: linear, times the logarithm of the number of codes.

>>> import arcgrad as ag
>>> encoder = ag.Encoder()
>>> g = ag.encode(ag.chain_graph([1, 2], [3, 4]), encoder)
>>> ag.is_acceptor(g), ag.decode(g, encoder).labels_to_list(ilabel=False)
(True, [3, 4])
)");
  m.def(
      "encode",
      [](const std::vector<Graph>& graphs, const Encoder& encoder) {
        const std::vector<Graph> inputs = snapshots(graphs);
        return run_op("encode", [&] {
          std::vector<Graph> out;
          for (const Graph& graph : inputs) out.push_back(encode(graph, encoder));
          return out;
        });
      },
      "graph"_a, "encoder"_a);
  def_op<const Encoder&>(m, "decode", decode, R"(
The graph with the labels, and possibly the weights, that its codes stand for.

Args:
    graph: A graph whose labels are codes, or a list of such graphs.
    encoder: The :class:`Encoder` that made the codes.

Raises:
    ValueError: If a label is not a code.

Gradient: each arc passes its gradient to the arc it came from. If weights are encoded, it also
passes it to the arc that had its code first, in the graph that was encoded. Time: linear.

>>> import arcgrad as ag
>>> encoder = ag.Encoder(weights=True)
>>> g = ag.encode(ag.chain_graph([5], weights=[0.5]), encoder)
>>> g.weights_to_list(), ag.decode(g, encoder).weights_to_list()
([0.0], [0.5])
)",
                         "encoder"_a);
}

}  // namespace

void init_normal_forms(nb::module_& m) {
  init_encoder(m);
  def_op<const std::string&, std::optional<int64_t>>(
      m, "disambiguate",
      [](const Graph& graph, const std::string& semiring, std::optional<int64_t> max_nodes) {
        return disambiguate(graph, to_semiring("disambiguate", semiring), max_nodes);
      },
      R"(
An equivalent graph in which every string has at most one path, with the score of all its paths in
``graph``.

It exists for more graphs than :func:`determinize` gives, and may be much smaller: several arcs with
one label may leave a node, if the strings after them differ. Epsilon arcs are removed first. Of a
transducer, pairs of input and output labels are made unambiguous.

Args:
    graph: A graph, or a list of graphs.
    semiring: How the scores of the paths of a string combine: ``"log"`` or ``"tropical"``.
    max_nodes: The most nodes of the result; by default 1,000,000 more than ten times the nodes of
        the graph.

Raises:
    ValueError: If the result has more than ``max_nodes`` nodes. Or if a weight is NaN or +inf.

Gradient: as for :func:`determinize`. Time and memory: quadratic in the arcs of equal strings, and
linear in the arcs of the subsets.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([1, 2]), ag.chain_graph([1, 3])])
>>> result = ag.disambiguate(g)
>>> ag.is_unambiguous(g), ag.is_unambiguous(result)
(False, True)
)",
      "semiring"_a = "log", "max_nodes"_a = nb::none());
  def_op<const std::string&, const std::string&, std::optional<int64_t>>(
      m, "epsilon_normalize",
      [](const Graph& graph, const std::string& side, const std::string& semiring,
         std::optional<int64_t> max_nodes) {
        constexpr const char* kOp = "epsilon_normalize";
        return epsilon_normalize(graph, to_side(kOp, side), to_semiring(kOp, semiring), max_nodes);
      },
      R"(
An equivalent graph in which, on every path, epsilons of one side come after all labels of that side.

Labels of the other side move along the paths, and arcs that are epsilon on both sides are removed.

Args:
    graph: A graph, or a list of graphs.
    side: The side whose epsilons come last: ``"input"`` or ``"output"``.
    semiring: How scores of removed epsilon paths combine: ``"log"`` or ``"tropical"``.
    max_nodes: The most nodes before epsilon removal; by default 1,000,000 more than ten times the
        nodes of the graph.

Raises:
    ValueError: If a cycle has more labels on the other side than on this one, so that no finite graph
        exists; the error names its nodes. If ``max_nodes`` is exceeded, or as :func:`remove`.

Gradient: exact to second order. Time and memory: linear in the result before epsilon removal, which
may be exponential in the number of pending labels.

>>> import arcgrad as ag
>>> g = ag.chain_graph([ag.epsilon, 1], [5, 6])
>>> result = ag.epsilon_normalize(g)
>>> result.labels_to_list(), result.labels_to_list(ilabel=False)
([1, -1], [5, 6])
)",
      "side"_a = "input", "semiring"_a = "log", "max_nodes"_a = nb::none());
  def_op(m, "minimize", minimize, R"(
The equivalent deterministic graph with the fewest nodes.

The graph must be deterministic; :func:`determinize` makes it so. Of a transducer, pairs of input and
output labels are minimized; epsilon counts as a label. Nodes merge if the scores of all strings after them differ by a
constant: up to 2^-20 for float32 weights, and 2^-36 for float64. Weights of arcs change only where
nodes merge, and paths keep their scores. Nodes that are on no possible path are left out.

Args:
    graph: A graph, or a list of graphs.

Raises:
    ValueError: If the graph is not deterministic; the error names a node and a label. Or if a weight
        is NaN or +inf.

Gradient: exact to second order, as long as a change of weights does not separate nodes. Nodes with
several arcs whose weights happen to be equal, as they are while all are zero, merge into the first
of them, and then only its arcs have a gradient. Time and memory: linear without cycles, else linear
times the logarithm of the number of nodes.

>>> import arcgrad as ag
>>> g = ag.determinize(ag.union([ag.chain_graph([1, 3]), ag.chain_graph([2, 3])]))
>>> g.num_arcs(), ag.minimize(g).num_arcs()
(4, 3)
)");
  def_op<Flag, Flag, const std::string&, const std::string&>(
      m, "push",
      [](const Graph& graph, bool weights, bool labels, const std::string& to,
         const std::string& semiring) {
        require(to == "start" || to == "end", "push", "`to` must be 'start' or 'end', but it is '",
                to, "'");
        return push(graph, weights, labels, to == "start", to_semiring("push", semiring));
      },
      R"(
An equivalent graph whose weights or output labels are as early, or as late, on its paths as possible.

Weights to the start: the arcs that leave a node, and its accept weight, sum to one (their
exponentials, or their maximum is 0), so they are the probabilities of the path that continues; start
weights have the scores of all paths. To the end, the same holds for the arcs that enter a node and
its start weight. Labels to the start: every output label is written as soon as all paths that go on
agree on it; an arc that then writes several labels is followed by arcs with epsilon input.

The result has node weights if weights are pushed, and only nodes on accepted paths.

Args:
    graph: A graph, or a list of graphs.
    weights: Push weights.
    labels: Push output labels.
    to: ``"start"`` or ``"end"``.
    semiring: How the scores of paths combine: ``"log"`` or ``"tropical"``. Labels do not need it.

Raises:
    ValueError: If neither is pushed, a weight is NaN or +inf, or a sum over cycles diverges.

Gradient: exact to second order. Time and memory: linear without cycles for weights, and for labels
as :func:`forward_score` with cycles; labels take time linear in the lengths of common outputs.

>>> import arcgrad as ag
>>> g = ag.chain_graph([1, 2], weights=[0.5, 1.0])
>>> result = ag.push(g, semiring="tropical")
>>> result.start_weights().tolist(), result.weights_to_list()
([1.5], [0.0, 0.0])
>>> ag.push(ag.chain_graph([1, 2], [-1, 7]), False, True).labels_to_list(ilabel=False)
[7, -1, -1]
)",
      "weights"_a = true, "labels"_a = false, "to"_a = "start", "semiring"_a = "log");
  def_op<const std::string&, double>(
      m, "optimize",
      [](const Graph& graph, const std::string& semiring, double max_growth) {
        return optimize(graph, to_semiring("optimize", semiring), max_growth);
      },
      R"(
An equivalent graph that is smaller or easier to search, by the steps that are safe.

Nodes on no accepted path and epsilon arcs are removed; then the graph is determinized and minimized.
A step whose result would be too large is left out.

Args:
    graph: A graph, or a list of graphs.
    semiring: How the scores of the paths of a string combine: ``"log"`` or ``"tropical"``.
    max_growth: How many times the arcs of the connected graph the result may have, 1 or more.

Raises:
    ValueError: If ``max_growth`` is less than 1, or as :func:`remove`.

Gradient: as for :func:`determinize` and :func:`minimize`.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1, 2, 3]), ag.chain_graph([1, 4, 3])])
>>> ag.optimize(g).num_arcs()
4
)",
      "semiring"_a = "log", "max_growth"_a = 2.0);
  def_op<const std::string&, std::optional<int64_t>>(
      m, "synchronize",
      [](const Graph& graph, const std::string& semiring, std::optional<int64_t> max_nodes) {
        return synchronize(graph, to_semiring("synchronize", semiring), max_nodes);
      },
      R"(
An equivalent graph in which every path pairs input and output labels, and epsilons come only after
the shorter string.

Args:
    graph: A graph, or a list of graphs.
    semiring: How scores of removed epsilon paths combine: ``"log"`` or ``"tropical"``.
    max_nodes: The most nodes before epsilon removal; by default 1,000,000 more than ten times the
        nodes of the graph.

Raises:
    ValueError: If a cycle does not have as many input as output labels, so that no finite graph
        exists; the error names its nodes. If ``max_nodes`` is exceeded, or as :func:`remove`.

Gradient: exact to second order. Time and memory: linear in the result before epsilon removal, which
may be exponential in the largest delay.

>>> import arcgrad as ag
>>> g = ag.chain_graph([ag.epsilon, 1, 2], [5, 6, ag.epsilon])
>>> result = ag.synchronize(g)
>>> result.labels_to_list(), result.labels_to_list(ilabel=False)
([1, 2], [5, 6])
)",
      "semiring"_a = "log", "max_nodes"_a = nb::none());
}

}  // namespace arcgrad::bindings
