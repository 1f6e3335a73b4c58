// The ops on graphs whose results can be written down.

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "arcgrad/ops.h"
#include "check.h"

using arcgrad::Graph;
using arcgrad::kEpsilon;
using arcgrad::Semiring;

namespace {

using Labels = std::vector<int32_t>;

/// The path that spells `ilabels` as `olabels`, with `weight` on its first arc.
Graph make_chain(const Labels& ilabels, const Labels& olabels, double weight) {
  Graph graph = arcgrad::chain_graph(ilabels, olabels, true, arcgrad::DType::float64);
  graph.set_weight(0, weight);
  return graph;
}

double forward(const Graph& graph) { return arcgrad::forward_score(graph).item(); }
double viterbi(const Graph& graph) { return arcgrad::viterbi_score(graph).item(); }
double logadd(double a, double b) { return std::log(std::exp(a) + std::exp(b)); }

const double kInf = std::numeric_limits<double>::infinity();

void test_scores() {
  const Graph both = arcgrad::union_({make_chain({1, 2}, {}, 0.5), make_chain({3}, {}, 0.25)});
  CHECK_CLOSE(forward(both), logadd(0.5, 0.25), 1e-14);
  CHECK_CLOSE(viterbi(both), 0.5, 0.0);
  const Graph best = arcgrad::viterbi_path(both);
  CHECK(best.num_arcs() == 2);
  CHECK_CLOSE(viterbi(best), 0.5, 0.0);
  CHECK(forward(Graph()) == -kInf);
  const double posterior = std::exp(0.5 - logadd(0.5, 0.25));
  CHECK_CLOSE(arcgrad::arc_posteriors(both).weights_to_vector(),
              (std::vector<double>{posterior, posterior, 1.0 - posterior}), 1e-14);
  CHECK_CLOSE(arcgrad::arc_posteriors(both, Semiring::tropical).weights_to_vector(),
              (std::vector<double>{1.0, 1.0, 0.0}), 0.0);
  const auto paths = arcgrad::best_paths(both, 5);
  CHECK(paths.size() == 2);
  CHECK_CLOSE(forward(paths[1]), 0.25, 1e-14);
}

void test_scores_of_lists() {
  const Graph good = make_chain({1}, {}, 1.0);
  Graph bad = make_chain({1}, {}, 1.0);
  bad.set_weight(0, std::nan(""));
  CHECK(arcgrad::forward_score(std::vector<Graph>{good, good}).size() == 2);
  CHECK_THROWS(std::invalid_argument, "forward_score (element 1 of 3): ",
               arcgrad::forward_score(std::vector<Graph>{good, bad, good}));
}

void test_composition() {
  const Graph first = make_chain({1, 2}, {3, kEpsilon}, 0.5);
  const Graph second = make_chain({kEpsilon, 3}, {5, 6}, 0.25);
  const Graph product = arcgrad::compose(first, second);
  CHECK_CLOSE(forward(product), 0.75, 1e-14);
  // Epsilons of both sides are passed in one order, not in every order.
  CHECK(arcgrad::best_paths(product, 9).size() == 1);
  CHECK(forward(arcgrad::compose(second, first)) == -kInf);
  const Graph again = arcgrad::intersect(make_chain({1, 2}, {}, 1.0), make_chain({1, 2}, {}, 2.0));
  CHECK_CLOSE(forward(again), 3.0, 0.0);
}

void test_rational_operations() {
  const Graph a = make_chain({1}, {}, -1.0), b = make_chain({2}, {}, -2.0);
  CHECK_CLOSE(forward(arcgrad::concat({a, b, a})), -4.0, 1e-14);
  CHECK_CLOSE(forward(arcgrad::concat({})), 0.0, 0.0);
  CHECK(forward(arcgrad::union_({})) == -kInf);
  CHECK_CLOSE(forward(arcgrad::closure(a)), -std::log1p(-std::exp(-1.0)), 1e-12);
  CHECK_THROWS(std::invalid_argument,
               "forward_score: ", forward(arcgrad::closure(make_chain({1}, {}, 0.5))));
}

void test_structure() {
  const Graph graph = make_chain({1, kEpsilon, 2}, {3, kEpsilon, 4}, 0.5);
  CHECK(arcgrad::remove(graph).num_arcs() == 2);
  CHECK_CLOSE(forward(arcgrad::remove(graph)), 0.5, 1e-14);
  CHECK(arcgrad::equal(arcgrad::invert(arcgrad::invert(graph)), graph));
  CHECK(arcgrad::isomorphic(arcgrad::reverse(arcgrad::reverse(graph)), graph));
  CHECK(arcgrad::equal(arcgrad::project_output(graph),
                       arcgrad::project_input(arcgrad::invert(graph))));
  Graph with_dead_end = arcgrad::clone(graph);
  with_dead_end.add_arc(0, with_dead_end.add_node(), 7);
  CHECK(arcgrad::connect(with_dead_end).num_arcs() == 3);
  CHECK(arcgrad::rand_equivalent(graph, arcgrad::remove(graph), 10, 1e-9, 100, 1));
  Graph cycle(false);
  cycle.add_node(true, true);
  cycle.add_arc(0, 0, 1);
  CHECK_THROWS(std::invalid_argument, "top_sort: ", arcgrad::top_sort(cycle));
}

void test_decoding() {
  Graph emissions = arcgrad::linear_graph(3, 2, false, arcgrad::DType::float64);
  emissions.set_weights(std::vector<double>{0.0, 1.0, 2.0, 0.0, 0.0, 3.0});
  Graph any(false, arcgrad::DType::float64);
  any.add_node(true, true);
  any.add_arc(0, 0, 0);
  any.add_arc(0, 0, 1);
  CHECK_CLOSE(viterbi(arcgrad::compose(any, emissions)), 6.0, 0.0);
  const Graph lattice = arcgrad::beam_search(any, emissions, {.lattice_beam = 0.5});
  CHECK_CLOSE(forward(lattice), 6.0, 1e-14);
  const Graph scores = arcgrad::outer_score({any, any}, {emissions});
  CHECK(scores.num_arcs() == 2);
  CHECK_CLOSE(scores.weight(0), forward(arcgrad::compose(any, emissions)), 1e-12);
}

}  // namespace

int main() {
  test_scores();
  test_scores_of_lists();
  test_composition();
  test_rational_operations();
  test_structure();
  test_decoding();
  return failures();
}
