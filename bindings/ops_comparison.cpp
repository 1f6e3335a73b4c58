// Bindings of comparison and sampling, with their documentation.

#include "ops.h"

namespace arcgrad::bindings {

void init_comparison_ops(nb::module_& m) {
  m.def(
      "is_deterministic",
      [](const Graph& graph) {
        const Graph input = graph.snapshot();
        return run_op("is_deterministic", [&] { return is_deterministic(input); });
      },
      "graph"_a, R"(
Whether a graph has at most one start node, no arc with an epsilon input label, and no two arcs with
the same input label from one node.

>>> import arcgrad as ag
>>> ag.is_deterministic(ag.chain_graph([1, 2]))
True
)");
  m.def(
      "equal",
      [](const Graph& a, const Graph& b) {
        const Graph first = a.snapshot(), second = b.snapshot();
        return run_op("equal", [&] { return equal(first, second); });
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
        return run_op("isomorphic", [&] { return isomorphic(first, second); });
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
         const Integer& seed, const std::string& semiring) {
        const Graph first = a.snapshot(), second = b.snapshot();
        const std::optional<uint64_t> number = to_seed("rand_equivalent", seed);
        const Semiring kind = to_semiring("rand_equivalent", semiring);
        return run_op("rand_equivalent", [&] {
          return rand_equivalent(first, second, num_samples, tol, max_length, number, kind);
        });
      },
      "a"_a, "b"_a, "num_samples"_a = 100, "tol"_a = 1e-4, "max_length"_a = 1000, nb::kw_only(),
      "seed"_a = nb::none(), "semiring"_a = "log", R"(
Whether two graphs give the same score to the strings of random paths of both.

Args:
    a: A graph.
    b: A graph.
    num_samples: The number of paths to draw, alternately from both graphs, regardless of weights.
    tol: The largest difference between two scores.
    max_length: Paths of more arcs are skipped.
    seed: Makes the paths repeatable; a whole number between 0 and 2**64 - 1.
    semiring: ``"log"`` for the score of all paths with the strings, ``"tropical"`` for the best one.

Raises:
    ValueError: If all drawn paths are skipped, so that nothing was compared; or if an argument is
        out of range.

>>> import arcgrad as ag
>>> g = ag.concat([ag.chain_graph([0]), ag.chain_graph([1])])
>>> ag.rand_equivalent(g, ag.chain_graph([0, 1]), seed=0)
True
)");
  m.def(
      "sample",
      [](const Graph& graph, int64_t max_length, const Integer& seed) {
        const Graph input = graph.snapshot();
        const std::optional<uint64_t> number = to_seed("sample", seed);
        return run_op("sample", [&] { return sample(input, max_length, number); });
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
      [](const std::vector<Graph>& graphs, int64_t max_length, const Integer& seed) {
        const std::vector<Graph> inputs = snapshots(graphs);
        const std::optional<uint64_t> first = to_seed("sample", seed);
        return run_op("sample", [&] {
          return map_batch("sample", inputs.size(), [&](size_t i) {
            return sample(inputs[i], max_length, first ? std::optional(*first + i) : first);
          });
        });
      },
      "graph"_a, "max_length"_a = 1000, nb::kw_only(), "seed"_a = nb::none());
}

}  // namespace arcgrad::bindings
