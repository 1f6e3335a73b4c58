// Bindings of the distribution over the paths of a graph: expectations, entropy, samples, with
// their documentation.

#include "ops.h"

namespace arcgrad::bindings {
namespace {

void init_expected(nb::module_& m) {
  m.def(
      "expected",
      [](const Graph& graph, nb::object costs) {
        const Graph input = graph.snapshot();
        const Graph like = to_graph_like("expected", "costs", input, costs);
        return run_op("expected", [&] { return expected(input, like); });
      },
      "graph"_a, "costs"_a, R"(
The expected cost of a path that is drawn with probability exp(score - forward_score), where the cost
of a path is the sum of the costs of its arcs.

This is the first-order expectation semiring: the sum over arcs of posterior times cost. With costs
that count errors it is the risk of minimum Bayes risk training, with ones the expected number of
arcs.

Args:
    graph: A graph, or a list of graphs. A product with emissions is materialized.
    costs: A graph of the same structure, whose weights are the costs, or an array with one cost per
        arc; for a list of graphs, a list of them. Costs on arcs of weight ``-inf`` are not read.

Raises:
    ValueError: If no path is accepted, a cost is not finite, or as :func:`forward_score`.

Gradient: exact to second order, with respect to the graph and to the costs: the posteriors. Cost:
that of :func:`forward_score` and its gradient; a second derivative takes a graph of twice as many
nodes.

>>> import arcgrad as ag
>>> g = ag.union([ag.chain_graph([1], weights=[0.0]), ag.chain_graph([2], weights=[0.0])])
>>> ag.expected(g, [1.0, 3.0]).item()
2.0
)");
  m.def(
      "expected",
      [](const std::vector<Graph>& graphs, nb::sequence costs) {
        const std::vector<Graph> inputs = snapshots(graphs);
        require(nb::len(costs) == inputs.size(), "expected", "there must be costs for each graph, ",
                inputs.size(), " in all, but there are ", nb::len(costs));
        std::vector<Graph> likes;
        for (size_t i = 0; i < inputs.size(); ++i)
          likes.push_back(to_graph_like("expected", "costs", inputs[i], nb::object(costs[i])));
        return run_op("expected", [&] { return map2("expected", expected, inputs, likes); });
      },
      "graph"_a, "costs"_a);
}

void init_sample(nb::module_& m) {
  m.def(
      "sample",
      [](const Graph& graph, const Integer& n, int64_t max_length, const Integer& seed) {
        const Graph input = graph.snapshot();
        const int64_t count = to_count("sample", n);
        const std::optional<uint64_t> number = to_seed("sample", seed);
        return run_op("sample", [&] { return sample(input, count, max_length, number); });
      },
      "graph"_a, "n"_a, nb::kw_only(), "max_length"_a = 1000, "seed"_a = nb::none(), R"(
Paths drawn with probability exp(score - forward_score), as chain graphs.

Args:
    graph: A graph, or a list of graphs; element i of a list is drawn with ``seed`` + i.
    n: The number of independent paths; without it the result is one path instead of a list.
    max_length: The largest number of arcs.
    seed: Makes the paths repeatable; a whole number between 0 and 2**64 - 1.

Returns:
    A list of ``n`` chains, or one chain without ``n``; for a list of graphs, a list of them.

Raises:
    ValueError: If no path is accepted, a drawn path is too long, an argument is out of range, or as
        :func:`forward_score`.

Gradient: each arc of a path passes its gradient to the arc it came from. The log probability of a
path is its score minus that of the graph, so that the score-function estimator (REINFORCE) needs no
other op. Cost: that of :func:`forward_score` once, and per path the arcs that leave its nodes.

>>> import arcgrad as ag
>>> g = ag.linear_graph(3, 2)
>>> ag.sample(g, seed=0).num_arcs()
3
>>> paths = ag.sample(g, 2, seed=0)
>>> log_probs = [ag.subtract(ag.forward_score(p), ag.forward_score(g)) for p in paths]
>>> [round(log_prob.item(), 2) for log_prob in log_probs]
[-2.08, -2.08]
)");
  m.def(
      "sample",
      [](const Graph& graph, int64_t max_length, const Integer& seed) {
        const Graph input = graph.snapshot();
        const std::optional<uint64_t> number = to_seed("sample", seed);
        return run_op("sample", [&] { return sample(input, max_length, number); });
      },
      "graph"_a, nb::kw_only(), "max_length"_a = 1000, "seed"_a = nb::none());
  m.def(
      "sample",
      [](const std::vector<Graph>& graphs, const Integer& n, int64_t max_length,
         const Integer& seed) {
        const std::vector<Graph> inputs = snapshots(graphs);
        const int64_t count = to_count("sample", n);
        const std::optional<uint64_t> first = to_seed("sample", seed);
        return run_op("sample", [&] {
          std::vector<std::vector<Graph>> out(inputs.size());
          for_batch("sample", inputs.size(), [&](size_t i) {
            out[i] =
                sample(inputs[i], count, max_length, first ? std::optional(*first + i) : first);
          });
          return out;
        });
      },
      "graph"_a, "n"_a, nb::kw_only(), "max_length"_a = 1000, "seed"_a = nb::none());
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
      "graph"_a, nb::kw_only(), "max_length"_a = 1000, "seed"_a = nb::none());
}

}  // namespace

void init_distribution_ops(nb::module_& m) {
  init_expected(m);
  def_op(m, "entropy", entropy, R"(
The entropy, in nats, of the distribution over paths with probability exp(score - forward_score).

It is the entropy of the strings if no string has two paths; :func:`determinize` makes it so.

Args:
    graph: A graph, or a list of graphs. A product with emissions is materialized.

Raises:
    ValueError: If no path is accepted, or as :func:`forward_score`.

Gradient: exact to second order. Cost: as :func:`expected`.

>>> import arcgrad as ag
>>> round(ag.entropy(ag.linear_graph(1, 4)).item(), 4)  # log(4)
1.3863
)");
  def_op2(m, "kl_divergence", kl_divergence, R"(
The Kullback-Leibler divergence, in nats, of the string distributions of two graphs: the expectation
under the first of log p - log q.

The graphs need not be normalized: a string has the probability exp(score - forward_score). It is
exact for deterministic acceptors, in which a string has one path; others are refused. It is ``inf``,
without gradient, if the first accepts a string that the second does not accept. Strings of score
``-inf`` are not accepted.

Args:
    first: A deterministic acceptor, or a list of them.
    second: A deterministic acceptor, or a list of them.

Raises:
    ValueError: If a graph is not a deterministic acceptor, the first accepts no path, or as
        :func:`forward_score`.

Gradient: exact to second order, with respect to both graphs. Cost: linear in the pairs of nodes that
strings of the first graph reach, and in their arcs.

>>> import arcgrad as ag
>>> p = ag.linear_graph(1, 2, [[0.0, 0.0]])
>>> q = ag.linear_graph(1, 2, [[0.0, 1.0]])
>>> round(ag.kl_divergence(p, q).item(), 4)
0.1201
)");
  init_sample(m);
}

}  // namespace arcgrad::bindings
