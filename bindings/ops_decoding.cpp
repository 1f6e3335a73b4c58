// Bindings of decoding, with its documentation.

#include <nanobind/stl/variant.h>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/ops/lazy_search.h"
#include "ops.h"

namespace arcgrad::bindings {
namespace {

Pruning to_pruning(double beam, std::optional<int64_t> max_active,
                   std::optional<double> lattice_beam) {
  Pruning pruning;
  pruning.beam = beam;
  pruning.max_active = max_active.value_or(pruning.max_active);
  pruning.lattice_beam = lattice_beam.value_or(pruning.lattice_beam);
  return pruning;
}

/// Graphs whose composition is made while it is searched.
struct LazyGraphs {
  std::vector<Graph> factors;

  LazyGraphs with(const Graph& next) const {
    LazyGraphs out = *this;
    out.factors.push_back(next.snapshot());
    return out;
  }
};

void require_lazy(bool lazy) {
  require(lazy, "compose", "a lazy composition must be composed with lazy=True, but it is False; ",
          "call build() for the graph");
}

}  // namespace

void init_decoding_ops(nb::module_& m) {
  nb::class_<LazyGraphs>(m, "LazyComposition", R"(
A composition that is made while it is searched, by ``compose(first, second, lazy=True)``.

:func:`beam_search` reads only the nodes that the beam reaches. Everything else needs the graph, by
:meth:`build`. With ``beam`` the lattice has the paths of that of the built graph; ``max_active`` may
decide ties otherwise, since nodes have other numbers. Graphs are composed from the left; from the
second one, they may have failure and rest arcs, which are matched exactly. None may have weights of
nodes.

>>> import arcgrad as ag
>>> letters = ag.closure(ag.chain_graph([0, 1], [5, -1]))
>>> words = ag.closure(ag.chain_graph([5]))
>>> lazy = ag.compose(letters, words, lazy=True)
>>> emissions = ag.linear_graph(2, 2, [[1.0, 0.0], [0.0, 1.0]])
>>> ag.viterbi_score(ag.beam_search(lazy, emissions)).item()
2.0
>>> lazy.build().num_arcs() > 0
True
)")
      .def_prop_ro(
          "graphs", [](const LazyGraphs& self) { return self.factors; },
          "The graphs that are composed, from the left.")
      .def(
          "build",
          [](const LazyGraphs& self) {
            const std::vector<Graph> factors = self.factors;
            return run_op("compose", [&] {
              Graph out = factors[0];
              for (size_t i = 1; i < factors.size(); ++i) out = compose(out, factors[i]);
              return out;
            });
          },
          "The whole composition as a graph.")
      .def("__repr__", [](const LazyGraphs& self) {
        return "LazyComposition of " + std::to_string(self.factors.size()) + " graphs";
      });
  // Calls without `lazy` take the overload of init_graph_ops, which comes first.
  m.def(
      "compose",
      [](const Graph& first, const Graph& second, const Integer& max_arcs,
         Flag lazy) -> std::variant<Graph, LazyGraphs> {
        const Graph a = first.snapshot(), b = second.snapshot();
        if (lazy) return LazyGraphs{{a, b}};
        const std::optional<int64_t> most = to_int64("compose", "max_arcs", max_arcs);
        return run_op("compose", [&] { return compose(a, b, most); });
      },
      "first"_a, "second"_a, nb::kw_only(), "max_arcs"_a = nb::none(), "lazy"_a = false);
  m.def(
      "compose",
      [](const LazyGraphs& first, const Graph& second, Flag lazy) {
        require_lazy(lazy);
        return first.with(second);
      },
      "first"_a, "second"_a, nb::kw_only(), "lazy"_a);
  m.def(
      "beam_search",
      [](const LazyGraphs& graphs, const Graph& emissions, double beam,
         std::optional<int64_t> max_active, std::optional<double> lattice_beam) {
        const Pruning pruning = to_pruning(beam, max_active, lattice_beam);
        const std::vector<Graph> factors = graphs.factors;
        const Graph scores = emissions.snapshot();
        return run_op("beam_search", [&] { return lazy_beam_search(factors, scores, pruning); });
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "beam"_a = Pruning{}.beam,
      "max_active"_a = nb::none(), "lattice_beam"_a = nb::none());
  m.def(
      "beam_search",
      [](const LazyGraphs& graphs, const Batch& emissions, double beam,
         std::optional<int64_t> max_active, std::optional<double> lattice_beam) {
        const Pruning pruning = to_pruning(beam, max_active, lattice_beam);
        const std::vector<Graph> factors = graphs.factors, scores = snapshots(emissions);
        return run_op("beam_search", [&] {
          return map_batch("beam_search", scores.size(),
                           [&](size_t i) { return lazy_beam_search(factors, scores[i], pruning); });
        });
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "beam"_a = Pruning{}.beam,
      "max_active"_a = nb::none(), "lattice_beam"_a = nb::none());
  m.def(
      "beam_search",
      [](const Graph& graph, const Graph& emissions, double beam, std::optional<int64_t> max_active,
         std::optional<double> lattice_beam) {
        const Pruning pruning = to_pruning(beam, max_active, lattice_beam);
        const Graph first = graph.snapshot(), second = emissions.snapshot();
        return run_op("beam_search", [&] { return beam_search(first, second, pruning); });
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "beam"_a = Pruning{}.beam,
      "max_active"_a = nb::none(), "lattice_beam"_a = nb::none(), R"(
A frame-synchronous Viterbi beam search through a graph; the result is a lattice.

Without pruning the lattice has the paths of ``compose(emissions, graph)``. Between two frames, each
node of the graph has the best score of the paths that reach it. Before each frame, nodes more than
``beam`` below the best node are pruned, then all but the ``max_active`` best (ties: the smallest
ids). Nothing is pruned after the last frame. Epsilon arcs are followed while the score stays within
both limits, taken over the nodes reached by arcs with labels; if no epsilon weight is positive, this
prunes nothing more. A pruned node is kept if the best path to an active node goes through it over
epsilon arcs.

Args:
    graphs: A graph, or a list of graphs, or a :class:`LazyComposition`. It may have cycles, several
        start and accept nodes, and epsilon, failure and rest arcs. Its input labels are matched, its output labels are kept.
    emissions: A dense linear graph, or a list of them.
    beam: The largest difference between the best score and the score of an active node.
    max_active: The largest number of active nodes; None for any number.
    lattice_beam: An arc is kept if some path through it scores at most this much less than the best
        path; None keeps all arcs on accepted paths.

Returns:
    An acyclic graph in topological order. Each arc is an arc of the graph taken at a frame, with the
    sum of both weights and of the failure arcs before it, or an epsilon arc of the graph between two
    frames. Arcs of weight ``-inf`` are left out, and so may be arcs by way of failure arcs whose paths
    are outside of the beam. A graph without nodes if no accepted path survives.

    Where epsilon arcs form a cycle, only arcs that lead away from where the best path enters the
    cycle are kept between two frames: the best path survives, but others may be lost.

Raises:
    ValueError: If a weight is NaN or +inf (the message names the arc, or the label and the frame),
        if the search meets a cycle of epsilon arcs with a positive weight, or if the emissions are
        not a dense linear graph.

Gradient: each arc passes its gradient to its arc of the graph and its emission; pruned arcs get
none. Time: per frame, linear in the active nodes, the arcs that leave them, and the epsilon arcs
followed, independent of the size of the graph. Once per call, O(nodes + arcs) of the graph.

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
        const std::vector<Graph> first = snapshots(graphs), second = snapshots(emissions);
        return run_op("beam_search", [&] { return beam_search(first, second, pruning); });
      },
      "graphs"_a, "emissions"_a, nb::kw_only(), "beam"_a = Pruning{}.beam,
      "max_active"_a = nb::none(), "lattice_beam"_a = nb::none());
  m.def(
      "best_paths",
      [](const Graph& graph, const Integer& n, Flag unique) {
        const Graph input = graph.snapshot();
        const int64_t count = to_count("best_paths", n);
        return run_op("best_paths", [&] { return best_paths(input, count, unique); });
      },
      "graph"_a, "n"_a, nb::kw_only(), "unique"_a = false, R"(
The best accepted paths as chain graphs, the best first.

Ties: the path with the smallest arc ids, where the first difference decides and the end of a path
precedes any arc. So the first path is the result of :func:`viterbi_path`. In a graph with cycles,
ties go to the path with the fewest arcs, then to the smallest arc ids.

Args:
    graph: A graph whose cycles have no positive weight, or a list of graphs. A product with
        emissions is materialized.
    n: The number of paths.
    unique: Of the paths with the same output string (epsilons do not count), return only the best.

Returns:
    A list of chains, shorter than ``n`` if there are fewer paths; for a list of graphs, a list of
    such lists.

Raises:
    ValueError: If a cycle has a positive weight, a weight is NaN or +inf, or ``n`` is less than 1 or
        does not fit 64 bits.

Gradient: each arc of a path passes its gradient to the arc it came from. Time: O(nodes + arcs) for
the best score from each node to the end, then an A* search with these exact scores: O(log(n L)) for
each of at most n L steps if paths have L arcs, and sorting the arcs of the nodes it visits. With
``unique``, a step extends a string by a label, and visits all arcs that can continue the string on
one of the n best paths.

>>> import arcgrad as ag
>>> graph = ag.linear_graph(2, 2, [[0.0, 1.0], [3.0, 2.5]])
>>> [(path.labels_to_list(), ag.viterbi_score(path).item()) for path in ag.best_paths(graph, 2)]
[([1, 0], 4.0), ([1, 1], 3.5)]
)");
  m.def(
      "best_paths",
      [](const std::vector<Graph>& graphs, const Integer& n, Flag unique) {
        const std::vector<Graph> inputs = snapshots(graphs);
        const int64_t count = to_count("best_paths", n);
        return run_op("best_paths", [&] { return best_paths(inputs, count, unique); });
      },
      "graph"_a, "n"_a, nb::kw_only(), "unique"_a = false);
}

}  // namespace arcgrad::bindings
