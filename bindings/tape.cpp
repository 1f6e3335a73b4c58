// Binds backward, grad, hvp and the switch for recording.

#include "arcgrad/autograd/arc_sources.h"
#include "arcgrad/autograd/backward.h"
#include "common.h"

namespace arcgrad::bindings {
namespace {

std::vector<Graph> seeds_of(const std::optional<Batch>& seeds) {
  return seeds ? snapshots(*seeds) : std::vector<Graph>{};
}

std::vector<Graph> gradients(const Batch& outputs, const std::vector<Graph>& inputs,
                             const std::optional<Batch>& grad_outputs, bool create_graph) {
  const std::vector<Graph> roots = snapshots(outputs), leaves = snapshots(inputs),
                           seeds = seeds_of(grad_outputs);
  return run_op("grad", [&] { return grad(roots, leaves, seeds, create_graph); });
}

nb::object to_array(Column values) {
  auto* owner = new Column(std::move(values));
  const nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<Column*>(p); });
  return nb::cast(
      nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>(owner->data(), {owner->size()}, capsule));
}

std::vector<Graph> hessian_products(const Batch& outputs, const std::vector<Graph>& inputs,
                                    const std::vector<Graph>& vectors) {
  const std::vector<Graph> roots = snapshots(outputs), leaves = snapshots(inputs);
  return run_op("hvp", [&] { return hvp(roots, leaves, vectors); });
}

}  // namespace

void init_tape(nb::module_& m) {
  m.def(
      "backward",
      [](const Batch& graphs, const std::optional<Batch>& grad, Flag retain_graph,
         Flag create_graph) {
        const std::vector<Graph> roots = snapshots(graphs), seeds = seeds_of(grad);
        run_op("backward", [&] { backward(roots, seeds, retain_graph, create_graph); });
      },
      "graphs"_a, "grad"_a = nb::none(), nb::kw_only(), "retain_graph"_a = false,
      "create_graph"_a = false, R"(
Computes the gradients of graphs with respect to the leaves they were made from.

The gradients are added to those stored in the leaves and in graphs marked with
:meth:`Graph.retain_grad`; read them with :meth:`Graph.grad`. A list is differentiated in one pass on
several threads. The result does not depend on the number of threads.

Args:
    graphs: The graph or graphs to differentiate.
    grad: Seed gradients: for each graph, a graph with as many arcs. By default all seeds are 1.
    retain_graph: Keep the tape, so that backward can be called again.
    create_graph: Record the gradients on the tape, so that they can be differentiated. Keeps the
        tape too.

Raises:
    RuntimeError: If the tape was freed, a graph does not depend on a graph with ``calc_grad``, or an
        op has no derivatives of this order.

>>> import arcgrad as ag
>>> g = ag.linear_graph(1, 2)
>>> ag.backward(ag.forward_score(g))
>>> g.grad().weights_to_list()
[0.5, 0.5]
)");

  m.def(
      "grad",
      [](const Batch& outputs, const Graph& inputs, const std::optional<Batch>& grad_outputs,
         Flag create_graph) { return gradients(outputs, {inputs}, grad_outputs, create_graph)[0]; },
      "outputs"_a, "inputs"_a, "grad_outputs"_a = nb::none(), nb::kw_only(),
      "create_graph"_a = false, R"(
The gradients of outputs with respect to inputs. Does not store them in the graphs, and keeps the
tape.

Args:
    outputs: The graph or graphs to differentiate; their gradients are summed.
    inputs: The graph or graphs to differentiate with respect to. They need not be leaves.
    grad_outputs: Seed gradients, one graph per output. By default all seeds are 1.
    create_graph: Record the gradients on the tape, so that they can be differentiated.

Returns:
    One gradient per input: a graph if ``inputs`` is a graph, else a list. It is zero if no output
    depends on the input.

Raises:
    RuntimeError: If no output depends on a graph with ``calc_grad``, an input has ``calc_grad``
        switched off, or the tape was freed.

>>> import arcgrad as ag
>>> g = ag.linear_graph(1, 2)
>>> ag.grad(ag.forward_score(g), g).weights_to_list()
[0.5, 0.5]
>>> g.is_grad_available()
False
)");
  m.def(
      "grad",
      [](const Batch& outputs, const std::vector<Graph>& inputs,
         const std::optional<Batch>& grad_outputs, Flag create_graph) {
        return gradients(outputs, snapshots(inputs), grad_outputs, create_graph);
      },
      "outputs"_a, "inputs"_a, "grad_outputs"_a = nb::none(), nb::kw_only(),
      "create_graph"_a = false);

  m.def(
      "hvp",
      [](const Batch& outputs, const Graph& inputs, nb::object vectors) {
        return hessian_products(outputs, {inputs},
                                {to_graph_like("hvp", "a vector", inputs, vectors)})[0];
      },
      "outputs"_a, "inputs"_a, "vectors"_a, R"(
The exact product of the Hessian of the sum of outputs with a vector, at about twice the cost of a
gradient.

Args:
    outputs: The graph or graphs to differentiate twice.
    inputs: The graph or graphs to differentiate with respect to.
    vectors: One vector per input: a graph with as many arcs, or an array of weights.

Returns:
    One product per input: a graph if ``inputs`` is a graph, else a list.

>>> import arcgrad as ag
>>> g = ag.linear_graph(1, 2, dtype="float64")
>>> ag.hvp(ag.forward_score(g), g, [1.0, 0.0]).weights_to_list()
[0.25, -0.25]
)");
  m.def(
      "hvp",
      [](const Batch& outputs, const std::vector<Graph>& list, nb::sequence vectors) {
        const std::vector<Graph> inputs = snapshots(list);
        require(nb::len(vectors) == inputs.size(), "hvp", "there must be one vector per input, ",
                inputs.size(), " in all, but there are ", nb::len(vectors));
        std::vector<Graph> graphs;
        for (size_t i = 0; i < inputs.size(); ++i)
          graphs.push_back(to_graph_like("hvp", "a vector", inputs[i], nb::object(vectors[i])));
        return hessian_products(outputs, inputs, graphs);
      },
      "outputs"_a, "inputs"_a, "vectors"_a);

  m.def(
      "arc_sources",
      [](const Graph& result, const Graph& input) {
        const Graph out = result.snapshot(), in = input.snapshot();
        ArcSources found = run_op("arc_sources", [&] { return arc_sources(out, in); });
        return nb::make_tuple(to_array(std::move(found.offset)), to_array(std::move(found.arcs)));
      },
      "result"_a, "input"_a,
      nb::sig("def arc_sources(result: Graph, input: Graph) -> "
              "tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int32]]"),
      R"(
The arcs of a graph that the arcs of a result came from, through any number of ops.

The sources of an arc are the arcs whose weights its own weight is made of: one for most ops, two if
both inputs of :func:`compose` are the same, several after :func:`remove`, none for an epsilon arc
that :func:`concat` added. Node weights are not arcs.

Args:
    result: A graph that ops made.
    input: A graph with ``calc_grad`` that the ops started with, or an intermediate result.

Returns:
    Two arrays, ``offsets`` and ``arcs``: the sources of arc k are ``arcs[offsets[k]:offsets[k + 1]]``,
    ascending.

Raises:
    ValueError: If ``result`` was not recorded as computed from ``input``.
    RuntimeError: If the tape was freed, or an op between them, such as a score, has a result that
        consists of no arcs of its input.

Cost: linear in the arcs of the result, for each op in between. Of paths in the tropical semiring,
only the best counts.

>>> import arcgrad as ag
>>> g = ag.linear_graph(2, 2, [[0.0, 1.0], [3.0, 2.0]])
>>> path = ag.viterbi_path(ag.concat([g, ag.chain_graph([7])]))
>>> offsets, arcs = ag.arc_sources(path, g)
>>> offsets.tolist(), arcs.tolist()  # the last two arcs are an epsilon and the 7
([0, 1, 2, 2, 2], [1, 2])
)");

  m.def("is_grad_enabled", &is_grad_enabled, R"(
Whether this thread records operations for differentiation.

>>> import arcgrad as ag
>>> ag.is_grad_enabled()
True
)");
  m.def(
      "set_grad_enabled", [](Flag enabled) { return set_grad_enabled(enabled); }, "enabled"_a,
      "Switches recording on or off in this thread and returns the old value.");
}

}  // namespace arcgrad::bindings
