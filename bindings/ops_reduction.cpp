// Bindings of ops that reduce graphs: determinization and pruning, with their documentation.

#include "ops.h"

namespace arcgrad::bindings {

void init_reduction_ops(nb::module_& m) {
  def_op<const std::string&, std::optional<int64_t>>(
      m, "determinize",
      [](const Graph& graph, const std::string& semiring, std::optional<int64_t> max_nodes) {
        return determinize(graph, to_semiring("determinize", semiring), max_nodes);
      },
      R"(
Weighted determinization: an equivalent graph with one start node, in which no two arcs with the same
labels leave a node. A string then has one path, with the score of all its paths in ``graph``.

Epsilon arcs are removed first. Of a transducer, pairs of input and output labels are determinized.
If some strings end with a weight of their own, it is an accept weight.

Args:
    graph: A graph, or a list of graphs.
    semiring: How the scores of the paths of a string combine: ``"log"`` or ``"tropical"``.
    max_nodes: The most nodes of the result; by default 1,000,000 more than ten times the nodes of
        the graph. Without cycles the result is finite, but it may be exponentially larger; with
        cycles, the graph must have the twins property.

Raises:
    ValueError: If the result has more than ``max_nodes`` nodes; the error names two nodes that have
        no twins property, if it finds them. Or if a weight is NaN or +inf.

Gradient: exact to second order, as long as a change of weights does not separate nodes of the
result. Where strings of different arcs lead to the same node because their weights happen to be
equal, as they do while all are zero, the arcs after it follow the string that reached it first, so
the gradients of single arcs may differ from those of ``graph``.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([1, 3])])
>>> ag.determinize(g).labels_to_list()
[1, 2, 3]
)",
      "semiring"_a = "log", "max_nodes"_a = nb::none());
  def_op<double, const std::string&>(
      m, "prune",
      [](const Graph& graph, double threshold, const std::string& semiring) {
        return prune(graph, threshold, to_semiring("prune", semiring));
      },
      R"(
The graph without the nodes and arcs whose paths are all far worse than the graph: by the score of
the best path through an arc, or by the posterior of the arc.

With node weights, a node starts or accepts no more if the paths that start or end there are.

Args:
    graph: A graph, or a list of graphs.
    threshold: How much worse: in the tropical semiring, the best path through a kept arc is at most
        this much below the best path; in the log semiring, the log posterior of a kept arc is at
        least minus the threshold.
    semiring: ``"tropical"`` for best paths, or ``"log"`` for posteriors.

Raises:
    ValueError: If the threshold is negative or NaN, a weight is NaN or +inf, or a cycle diverges.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1], weights=[0.0]), ag.chain_graph([2], weights=[-5.0])])
>>> ag.prune(g, 3.0).labels_to_list()
[1]
)",
      "threshold"_a, "semiring"_a = "tropical");
}

}  // namespace arcgrad::bindings
