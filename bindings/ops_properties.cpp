// Bindings of properties of graphs, with their documentation.

#include "ops.h"

namespace arcgrad::bindings {
namespace {

void def_property(nb::module_& m, const char* name, bool (*has)(const Graph&), const char* doc) {
  m.def(
      name,
      [name, has](const Graph& graph) {
        const Graph input = graph.snapshot();
        return run_op(name, [&] { return has(input); });
      },
      "graph"_a, doc);
}

}  // namespace

void init_properties(nb::module_& m) {
  def_property(m, "is_acceptor", is_acceptor, R"(
Whether every arc has the same label on both sides.

>>> import arcgrad as ag
>>> ag.is_acceptor(ag.chain_graph([1], [2]))
False
)");
  def_property(m, "is_acyclic", is_acyclic, R"(
Whether there is no cycle. Also a cycle on no accepted path counts.

>>> import arcgrad as ag
>>> ag.is_acyclic(ag.closure(ag.chain_graph([1])))
False
)");
  def_property(m, "is_connected", is_connected, R"(
Whether every node is on an accepted path. :func:`connect` makes it so.

>>> import arcgrad as ag
>>> g = ag.chain_graph([1])
>>> g.add_node()
2
>>> ag.is_connected(g)
False
)");
  def_property(m, "is_deterministic", is_deterministic, R"(
Whether a graph has at most one start node, no arc with an epsilon input label, and no two arcs with
the same input label from one node. Failure and rest arcs are arcs with a label.

>>> import arcgrad as ag
>>> ag.is_deterministic(ag.chain_graph([1, 2]))
True
)");
  m.def(
      "is_epsilon_free",
      [](const Graph& graph, const std::optional<std::string>& side) {
        const Graph input = graph.snapshot();
        const auto which = side ? std::optional(to_side("is_epsilon_free", *side)) : std::nullopt;
        return run_op("is_epsilon_free", [&] { return is_epsilon_free(input, which); });
      },
      "graph"_a, "side"_a = nb::none(), R"(
Whether no arc is epsilon.

Args:
    graph: A graph.
    side: ``"input"`` or ``"output"`` for labels of one side; by default an arc counts if both of its
        labels are epsilon.

>>> import arcgrad as ag
>>> g = ag.chain_graph([1, 2], [3, ag.epsilon])
>>> ag.is_epsilon_free(g), ag.is_epsilon_free(g, "output")
(True, False)
)");
  def_property(m, "is_functional", is_functional, R"(
Whether every input string has at most one output string. Weights do not matter.

Time and memory: linear in the pairs of arcs with the same input label whose nodes can be reached by
the same string, at most quadratic.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1], [2]), ag.chain_graph([1], [3])])
>>> ag.is_functional(g), ag.is_functional(ag.invert(g))
(False, True)
)");
  def_property(m, "is_string", is_string, R"(
Whether a graph is one path: a chain from its only start to its only accept node.

>>> import arcgrad as ag
>>> ag.is_string(ag.chain_graph([1, 2])), ag.is_string(ag.linear_graph(1, 2))
(True, False)
)");
  def_property(m, "is_unambiguous", is_unambiguous, R"(
Whether every string has at most one accepted path. The strings of a transducer are pairs of labels
along its arcs without those that are epsilon on both sides. Weights do not matter.

Time and memory: linear in the pairs of arcs with the same labels whose nodes can be reached by the
same string, at most quadratic.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([1, 3])])
>>> ag.is_unambiguous(g), ag.is_deterministic(g)
(True, False)
)");
}

}  // namespace arcgrad::bindings
