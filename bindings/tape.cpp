#include "arcgrad/autograd/backward.h"
#include "common.h"

namespace arcgrad::bindings {
namespace {

std::vector<Graph> seeds_of(const char* op, const std::optional<Batch>& seeds) {
  return seeds ? snapshots(op, *seeds) : std::vector<Graph>{};
}

std::vector<Graph> gradients(const Batch& outputs, const std::vector<Graph>& inputs,
                             const std::optional<Batch>& grad_outputs, bool create_graph) {
  const std::vector<Graph> roots = snapshots("grad", outputs), leaves = snapshots(inputs),
                           seeds = seeds_of("grad", grad_outputs);
  nb::gil_scoped_release release;
  return grad(roots, leaves, seeds, create_graph);
}

/// A vector of hvp: a graph, or weights for a graph like `like`.
Graph to_vector(const Graph& like, nb::handle vector) {
  if (nb::isinstance<Graph>(vector)) return nb::cast<Graph>(vector).snapshot();
  Weights weights = to_weights("hvp", vector, like.dtype());
  require(weights.size() == like.num_arcs(), "hvp",
          "a vector must have one entry per arc of its input, ", like.num_arcs(),
          " in all, but it has ", weights.size());
  return {like.topology_ptr(), std::move(weights)};
}

std::vector<Graph> hessian_products(const Batch& outputs, const std::vector<Graph>& inputs,
                                    const std::vector<Graph>& vectors) {
  const std::vector<Graph> roots = snapshots("hvp", outputs), leaves = snapshots(inputs);
  nb::gil_scoped_release release;
  return hvp(roots, leaves, vectors);
}

}  // namespace

void init_tape(nb::module_& m) {
  m.def(
      "backward",
      [](const Batch& graphs, const std::optional<Batch>& grad, Flag retain_graph,
         Flag create_graph) {
        const std::vector<Graph> roots = snapshots("backward", graphs),
                                 seeds = seeds_of("backward", grad);
        nb::gil_scoped_release release;
        backward(roots, seeds, retain_graph, create_graph);
      },
      "graphs"_a, "grad"_a = nb::none(), nb::kw_only(), "retain_graph"_a = false,
      "create_graph"_a = false, R"(
Differentiates graphs with respect to the leaves they were made from.

Gradients add up in the leaves, where :meth:`Graph.grad` finds them, and in graphs marked with
:meth:`Graph.retain_grad`. A list is differentiated in one walk of the tape on the threads of the
pool, and the result does not depend on their number.

Args:
    graphs: The graph or graphs to differentiate.
    grad: Seed gradients, one graph per graph with as many arcs. By default every arc has seed 1.
    retain_graph: Keep the tape, so that backward can be called again.
    create_graph: Put the gradients on the tape too, so that they can be differentiated.

Raises:
    RuntimeError: If the tape was freed, a graph has no gradient to compute, or the order of
        differentiation is more than two.

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
The gradients of outputs with respect to inputs. Stores nothing in the graphs and keeps the tape.

Args:
    outputs: The graph or graphs to differentiate; their gradients are summed.
    inputs: The graph or graphs to differentiate with respect to, leaves or not.
    grad_outputs: Seed gradients, one graph per output. By default every arc has seed 1.
    create_graph: Put the gradients on the tape, so that they can be differentiated.

Returns:
    One gradient per input, in the form of ``inputs``. It is zero where an output does not depend
    on the input.

Raises:
    RuntimeError: If no output has a gradient, an input has ``calc_grad`` off, or the tape was
        freed.

>>> import arcgrad as ag
>>> g = ag.linear_graph(1, 2)
>>> ag.grad(ag.forward_score(g), g).weights_to_list()
[0.5, 0.5]
>>> g.is_grad_available()
False
)");
  m.def(
      "grad",
      [](const Batch& outputs, const GraphList& inputs, const std::optional<Batch>& grad_outputs,
         Flag create_graph) {
        return gradients(outputs, snapshots("grad", inputs), grad_outputs, create_graph);
      },
      "outputs"_a, "inputs"_a, "grad_outputs"_a = nb::none(), nb::kw_only(),
      "create_graph"_a = false);

  m.def(
      "hvp",
      [](const Batch& outputs, const Graph& inputs, nb::object vectors) {
        return hessian_products(outputs, {inputs}, {to_vector(inputs, vectors)})[0];
      },
      "outputs"_a, "inputs"_a, "vectors"_a, R"(
The Hessian of the sum of outputs times a vector, exact, at about twice the cost of a gradient.

Args:
    outputs: The graph or graphs to differentiate twice.
    inputs: The graph or graphs to differentiate with respect to.
    vectors: One vector per input: a graph with as many arcs, or an array of weights.

Returns:
    One product per input, in the form of ``inputs``.

>>> import arcgrad as ag
>>> g = ag.linear_graph(1, 2, dtype="float64")
>>> ag.hvp(ag.forward_score(g), g, [1.0, 0.0]).weights_to_list()
[0.25, -0.25]
)");
  m.def(
      "hvp",
      [](const Batch& outputs, const GraphList& list, nb::sequence vectors) {
        const std::vector<Graph> inputs = snapshots("hvp", list);
        require(nb::len(vectors) == inputs.size(), "hvp", "there must be one vector per input, ",
                inputs.size(), " in all, but there are ", nb::len(vectors));
        std::vector<Graph> graphs;
        for (size_t i = 0; i < inputs.size(); ++i)
          graphs.push_back(to_vector(inputs[i], nb::object(vectors[i])));
        return hessian_products(outputs, inputs, graphs);
      },
      "outputs"_a, "inputs"_a, "vectors"_a);

  m.def("is_grad_enabled", &is_grad_enabled, R"(
Whether operations of this thread are recorded for differentiation.

>>> import arcgrad as ag
>>> ag.is_grad_enabled()
True
)");
  m.def(
      "set_grad_enabled", [](Flag enabled) { return set_grad_enabled(enabled); }, "enabled"_a,
      "Switches recording on or off in this thread and returns what it was.");
}

}  // namespace arcgrad::bindings
