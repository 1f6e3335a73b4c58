// Gradients and products with the Hessian, against finite differences.

#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "arcgrad/arcgrad.h"
#include "check.h"

using arcgrad::DType;
using arcgrad::Graph;

namespace {

using Values = std::vector<double>;
using Score = std::function<Graph(const Graph&)>;

/// A leaf with the structure of `graph`.
Graph with_weights(const Graph& graph, const Values& values) {
  return Graph(graph.topology_ptr(), arcgrad::Weights::from(values), true);
}

/// A graph with a cycle, epsilons, and arcs of several paths.
Graph make_cyclic(double lift = 0.0) {
  Graph graph(true, DType::float64);
  graph.add_node(true);
  graph.add_node();
  graph.add_node(false, true);
  graph.add_arc(0, 1, 0, 0, lift - 0.5);
  graph.add_arc(1, 1, 1, 1, lift - 1.5);
  graph.add_arc(1, 0, arcgrad::kEpsilon, arcgrad::kEpsilon, lift - 2.0);
  graph.add_arc(1, 2, 1, 1, lift - 0.25);
  graph.add_arc(0, 2, 0, 0, lift - 1.0);
  return graph;
}

Graph make_emissions(int frames, int labels) {
  Graph graph = arcgrad::linear_graph(frames, labels, true, DType::float64);
  Values values;
  for (int i = 0; i < frames * labels; ++i) values.push_back(0.25 * ((7 * i) % 9) - 1.0);
  graph.set_weights(values);
  return graph;
}

Values gradient(const Score& score, const Graph& graph) {
  const Graph output = score(graph);
  return arcgrad::grad({{output}}, {{graph}})[0].weights_to_vector();
}

Values differences(const Score& score, const Graph& graph) {
  constexpr double kStep = 1e-5;
  const Values base = graph.weights_to_vector();
  Values found;
  for (size_t arc = 0; arc < base.size(); ++arc) {
    Values ahead = base, behind = base;
    ahead[arc] += kStep;
    behind[arc] -= kStep;
    const double rise =
        score(with_weights(graph, ahead)).item() - score(with_weights(graph, behind)).item();
    found.push_back(rise / (2 * kStep));
  }
  return found;
}

/// `grad`, `backward` and `hvp` of a score of one graph.
void check_derivatives(const Score& score, const Graph& graph, bool has_hessian = true) {
  const Values first = gradient(score, graph);
  CHECK_CLOSE(first, differences(score, graph), 1e-8);

  Graph leaf = with_weights(graph, graph.weights_to_vector());
  arcgrad::backward(score(leaf));
  CHECK_CLOSE(leaf.grad().weights_to_vector(), first, 0.0);

  Values direction, base = graph.weights_to_vector(), ahead = base, behind = base;
  for (size_t arc = 0; arc < base.size(); ++arc) {
    direction.push_back(0.5 - 0.125 * static_cast<double>(arc % 7));
    ahead[arc] += 1e-5 * direction[arc];
    behind[arc] -= 1e-5 * direction[arc];
  }
  const Values high = gradient(score, with_weights(graph, ahead));
  const Values low = gradient(score, with_weights(graph, behind));
  Values expected;
  double largest = 0.0;
  for (size_t arc = 0; arc < base.size(); ++arc) {
    expected.push_back((high[arc] - low[arc]) / 2e-5);
    largest = std::fmax(largest, std::abs(expected.back()));
  }
  CHECK((largest > 0.01) == has_hessian);
  const Graph output = score(graph), vector = with_weights(graph, direction);
  CHECK_CLOSE(arcgrad::hvp({{output}}, {{graph}}, {{vector}})[0].weights_to_vector(), expected,
              1e-7);
}

void test_scores() {
  const Graph cyclic = make_cyclic(), emissions = make_emissions(5, 3);
  const Graph alignments =
      arcgrad::ctc_graph(std::vector<int32_t>{1, 2}, 0, 3, true, DType::float64);
  check_derivatives([](const Graph& g) { return arcgrad::forward_score(g); }, cyclic);
  check_derivatives([](const Graph& g) { return arcgrad::viterbi_score(g); }, cyclic, false);
  // To the graph, and to the emissions.
  for (const Graph& graph : {alignments, cyclic}) {
    check_derivatives([&](const Graph& g) { return arcgrad::sequence_loss(g, emissions); }, graph);
    check_derivatives([&](const Graph& g) { return arcgrad::sequence_loss(graph, g); }, emissions);
  }
}

void test_ops_behind_a_score() {
  const Graph cyclic = make_cyclic(), small = make_cyclic(-1.0), other = make_cyclic(-0.5);
  const auto forward = [](const Graph& graph) { return arcgrad::forward_score(graph); };
  check_derivatives([&](const Graph& g) { return forward(arcgrad::remove(g)); }, cyclic);
  check_derivatives([&](const Graph& g) { return forward(arcgrad::closure(g)); }, small);
  check_derivatives([&](const Graph& g) { return forward(arcgrad::concat({g, other, g})); },
                    cyclic);
  check_derivatives([&](const Graph& g) { return forward(arcgrad::union_({other, g, g})); },
                    cyclic);
  check_derivatives([&](const Graph& g) { return forward(arcgrad::compose(g, other)); }, small);
  check_derivatives(
      [&](const Graph& g) { return forward(arcgrad::add(arcgrad::scale(g, 0.5), other)); }, small);
}

void test_gradients_accumulate() {
  const Graph graph = make_cyclic();
  const Graph score = arcgrad::forward_score(graph);
  arcgrad::backward(score, true);
  const Values once = graph.grad().weights_to_vector();
  arcgrad::backward(score);
  Values twice;
  for (double value : once) twice.push_back(2.0 * value);
  CHECK_CLOSE(graph.grad().weights_to_vector(), twice, 0.0);
  // The tape was freed.
  CHECK_THROWS(arcgrad::TapeError, "backward: ", arcgrad::backward(score));
  Graph handle = graph;
  handle.zero_grad();
  CHECK(!graph.is_grad_available());
}

void test_what_has_no_gradient() {
  Graph constant = make_cyclic();
  constant.set_calc_grad(false);
  const Graph score = arcgrad::forward_score(constant);
  CHECK(!score.calc_grad());
  CHECK_THROWS(std::exception, "backward: ", arcgrad::backward(score));
}

}  // namespace

int main() {
  test_scores();
  test_ops_behind_a_score();
  test_gradients_accumulate();
  test_what_has_no_gradient();
  return failures();
}
