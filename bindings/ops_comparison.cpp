// Bindings of comparison, with their documentation.

#include "ops.h"

namespace arcgrad::bindings {

void init_comparison_ops(nb::module_& m) {
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
      "equivalent",
      [](const Graph& a, const Graph& b, double tol, const std::string& semiring,
         const Integer& max_nodes) {
        const Graph first = a.snapshot(), second = b.snapshot();
        const Semiring kind = to_semiring("equivalent", semiring);
        const std::optional<int64_t> most = to_int64("equivalent", "max_nodes", max_nodes);
        return run_op("equivalent", [&] { return equivalent(first, second, tol, kind, most); });
      },
      "a"_a, "b"_a, "tol"_a = 1e-4, nb::kw_only(), "semiring"_a = "log", "max_nodes"_a = nb::none(),
      R"(
Whether two graphs give the same score to every string, or every pair of strings. It is exact: both
graphs are made deterministic and compared node by node. Transducers are synchronized first.

Args:
    a: A graph.
    b: A graph.
    tol: The largest difference between two scores.
    semiring: ``"log"`` for the score of all paths of a string, ``"tropical"`` for the best one.
    max_nodes: The most nodes of a deterministic form; by default 1,000,000 more than ten times the
        nodes of the graph.

Raises:
    ValueError: If a graph has no deterministic form within ``max_nodes``, or as :func:`synchronize`.
        :func:`rand_equivalent` then compares random paths.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([1, 3])])
>>> ag.equivalent(g, ag.determinize(g)), ag.equivalent(g, ag.chain_graph([1, 2]))
(True, False)
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
}

}  // namespace arcgrad::bindings
