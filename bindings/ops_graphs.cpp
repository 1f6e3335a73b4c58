// Bindings of the ops from graphs to graphs, with their documentation: products, rational
// operations, weights and structure.

#include "ops.h"

namespace arcgrad::bindings {
namespace {

void init_products(nb::module_& m) {
  def_composition(m, "compose", compose, R"(
The composition: if ``first`` maps x to y and ``second`` maps y to z, the result maps x to z.

Scores add. Each pair of matching paths appears exactly once, also where both have epsilons (epsilon
filter). The result has only nodes on accepted paths. ``first @ second`` is the same. One of the
graphs may have failure and rest arcs (:data:`phi`, :data:`rho`) where they meet; the result has none.

Args:
    first: A graph, or a list of graphs.
    second: A graph, or a list of graphs.
    max_arcs: How many arcs the search may reach, including those on no accepted path, before it
        raises. By default as many as fit into half of the memory of this machine.
    lazy: Whether to return a :class:`LazyComposition`, of which :func:`beam_search` reads only what
        the beam reaches. Then ``first`` may be one, too.

Raises:
    ValueError: If the search reaches more than ``max_arcs`` arcs. For a product with emissions it is
        raised when the product is materialized. If both graphs have failure or rest arcs, or failure
        arcs form a cycle, or several leave a node.

Gradient: each arc passes its gradient to the arcs it was made of. Time and memory: linear in
the pairs of nodes that can be reached together, and in their arcs.

>>> import arcgrad as ag
>>> first = ag.chain_graph([1, 2], [3, 4])
>>> second = ag.chain_graph([3, 4], [5, 6])
>>> result = ag.compose(first, second)
>>> result.labels_to_list(), result.labels_to_list(ilabel=False)
([1, 2], [5, 6])
)");
  def_composition(m, "intersect", intersect, R"(
The intersection of two acceptors: the strings that both accept, with their scores added.

Args:
    first: An acceptor, or a list of acceptors.
    second: An acceptor, or a list of acceptors.
    max_arcs: As for :func:`compose`.

Raises:
    ValueError: If an arc has different labels; :func:`compose` is for transducers. As
        :func:`compose`.

Gradient, time and memory: as :func:`compose`.

>>> import arcgrad as ag
>>> ag.intersect(ag.linear_graph(2, 3), ag.chain_graph([2, 0])).labels_to_list()
[2, 0]
)");
}

void init_rational(nb::module_& m) {
  def_op_of_list(m, "union", union_, R"(
The union: accepts every string that one of the graphs accepts. ``first + second`` is the same.

Args:
    graphs: A list of graphs, or a list of such lists. The union of an empty list accepts nothing.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([0]), ag.chain_graph([1])])
>>> g.num_nodes(), g.labels_to_list()
(4, [0, 1])
)");
  def_op_of_list(m, "concat", concat, R"(
The concatenation: accepts a string of the first graph followed by one of the second, and so on.

Epsilon arcs of weight 0 join every accept node of a graph to every start node of the next. They are
numbered after the arcs of the former and before the arcs of the latter.

Args:
    graphs: A list of graphs, or a list of such lists. An empty list gives a graph that accepts only the empty string.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear in the
result.

>>> import arcgrad as ag
>>> ag.concat([ag.chain_graph([0]), ag.chain_graph([1])]).labels_to_list()
[0, -1, 1]
)");
  def_op(m, "closure", closure, R"(
The Kleene closure: accepts any concatenation of zero or more strings of the graph.

Node 0 is a new start and accept node; the nodes of ``graph`` follow. Epsilon arcs of weight 0 lead
from it to the old starts and from the old accepts back to it.

A path without arcs, from a start node that accepts and has no weight, is not repeated: it spells
nothing, so that closures of graphs with an optional part have finite scores. The closure then accepts
the empty string once, with score 0. Epsilon arcs and node weights are repeated, and the forward score
diverges if an empty path with them has weight 0.

Args:
    graph: A graph, or a list of graphs.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear.

>>> import arcgrad as ag
>>> ag.closure(ag.chain_graph([7])).labels_to_list()
[7, -1, -1]
)");
  def_op(m, "plus", plus, R"(
One or more strings of the graph: the closure without zero repetitions.

Epsilon arcs of weight 0 lead from every accept node to every start node. If a start node accepts and
has no weight, the result is the :func:`closure`.

Args:
    graph: A graph, or a list of graphs.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear in the
result.

>>> import arcgrad as ag
>>> ag.plus(ag.chain_graph([7])).labels_to_list()
[7, -1]
)");
  def_op(m, "optional", optional, R"(
Zero or one string of the graph: its union with the empty string, whose score is 0.

Node 0 is a new start and accept node; the nodes of ``graph`` follow.

Args:
    graph: A graph, or a list of graphs.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear.

>>> import arcgrad as ag
>>> ag.optional(ag.chain_graph([7])).accept().tolist()
[0, 2]
)");
  def_op<int64_t>(m, "power", power, R"(
The n-th power: the concatenation of n copies of the graph.

Args:
    graph: A graph, or a list of graphs.
    n: The number of copies, 0 or more. The power 0 accepts only the empty string.

Raises:
    ValueError: If ``n`` is negative, or the result has too many nodes or arcs.

Gradient: each copy of an arc passes its gradient to the arc. Time and memory: linear in the result.

>>> import arcgrad as ag
>>> ag.power(ag.chain_graph([7]), 3).labels_to_list()
[7, -1, 7, -1, 7]
)",
                  "n"_a);
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
The graph that accepts every string reversed: arcs are reversed, start and accept nodes exchanged.

Args:
    graph: A graph, or a list of graphs.

>>> import arcgrad as ag
>>> ag.viterbi_path(ag.reverse(ag.chain_graph([1, 2]))).labels_to_list()
[2, 1]
)");
  def_op(m, "connect", connect, R"(
The graph without the nodes that are on no accepted path. Arcs of weight ``-inf`` count as arcs.

Args:
    graph: A graph, or a list of graphs.

Time and memory: linear. The result is cached with the nodes and arcs, so a second call with other
weights only copies weights.

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
Weighted epsilon removal: the graph without the arcs of a label, which count as epsilon arcs.

Scores are unchanged: the weights of removed arcs move into the arcs before them, or after them at a
start node. If the empty string is accepted over removed arcs, a start node accepts with its score as
accept weight. The result has only nodes on accepted paths.

Args:
    graph: A graph, or a list of graphs.
    ilabel: Input label of the arcs to remove.
    olabel: Their output label; by default the input label.
    semiring: How the weights of parallel removed paths combine: ``"log"`` or ``"tropical"``.

Raises:
    ValueError: If a weight is NaN or +inf, or the removed arcs have a cycle that diverges.

Gradient: exact to second order. Time and memory: linear in the sizes of the epsilon closures and in
the result.

>>> import arcgrad as ag
>>> g = ag.concat([ag.chain_graph([0]), ag.chain_graph([1])])
>>> ag.remove(g).labels_to_list()
[0, 1]
)",
      "ilabel"_a = kEpsilon, "olabel"_a = nb::none(), "semiring"_a = "log");
  def_op<Flag>(m, "arc_sort", arc_sort, R"(
The graph with arcs sorted by source node and label. No other operation needs it.

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
The graph with nodes in topological order: every arc leads to a higher node id. Arcs keep their
order.

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

}  // namespace

void init_graph_ops(nb::module_& m) {
  init_products(m);
  init_rational(m);
  init_weights(m);
  init_structure(m);
}

}  // namespace arcgrad::bindings
