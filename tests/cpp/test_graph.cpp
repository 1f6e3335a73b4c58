// Building graphs, what they refuse, weights, and files.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/io/io.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "check.h"

using arcgrad::DType;
using arcgrad::Graph;
using arcgrad::kEpsilon;

namespace {

Graph make_diamond(DType dtype) {
  Graph graph(true, dtype);
  graph.add_node(true);
  graph.add_node();
  graph.add_node();
  graph.add_node(false, true);
  graph.add_arc(0, 1, 0, 1, 0.5);
  graph.add_arc(0, 2, 1, kEpsilon, -0.25);
  graph.add_arc(1, 3, kEpsilon, 0, 1.0 / 3.0);
  graph.add_arc(2, 3, 2, 2, -std::numeric_limits<double>::infinity());
  return graph;
}

void test_building() {
  const Graph graph = make_diamond(DType::float64);
  CHECK(graph.num_nodes() == 4);
  CHECK(graph.num_arcs() == 4);
  CHECK(graph.weight(2) == 1.0 / 3.0);
  CHECK(graph.calc_grad());
  CHECK(make_diamond(DType::float32).weight(2) == static_cast<double>(1.0F / 3.0F));
  // A handle is the same graph, a detached one is not.
  Graph handle = graph;
  CHECK(handle.is_same(graph));
  handle.add_node();
  CHECK(graph.num_nodes() == 5);
  CHECK(!graph.detach().is_same(graph));
  CHECK(!graph.detach().calc_grad());
  CHECK(!Graph(nullptr));
}

void test_arrays() {
  arcgrad::Arrays arrays;
  arrays.num_nodes = 2;
  arrays.start = {0};
  arrays.accept = {1};
  arrays.src = {0, 0};
  arrays.dst = {1, 1};
  arrays.ilabel = {3, 4};
  const auto weights = arcgrad::Weights::from(std::vector<double>{1.0, 2.0});
  const Graph graph = Graph::from_arrays(arrays, weights);
  CHECK(graph.num_arcs() == 2);
  CHECK_CLOSE(graph.weights_to_vector(), (std::vector<double>{1.0, 2.0}), 0.0);
  arrays.dst = {1, 2};
  CHECK_THROWS(std::invalid_argument, "from_arrays: ", Graph::from_arrays(arrays, weights));
  arrays.dst = {1};
  CHECK_THROWS(std::invalid_argument, "from_arrays: ", Graph::from_arrays(arrays, weights));
}

void test_refusals_change_nothing() {
  Graph graph = make_diamond(DType::float64);
  CHECK_THROWS(std::invalid_argument, "add_arc: ", graph.add_arc(0, 4, 0));
  CHECK_THROWS(std::invalid_argument, "add_arc: ", graph.add_arc(-1, 0, 0));
  CHECK_THROWS(std::invalid_argument, "add_arc: ", graph.add_arc(0, 1, -4));
  CHECK_THROWS(std::invalid_argument, "make_start: ", graph.make_start(4));
  CHECK_THROWS(std::invalid_argument, "set_weights: ", graph.set_weights(std::vector<double>{1.0}));
  CHECK_THROWS(std::invalid_argument, "item: ", graph.item());
  CHECK_THROWS(arcgrad::TapeError, "grad: ", graph.grad());
  CHECK(arcgrad::equal(graph, make_diamond(DType::float64)));
}

void test_weights_of_earlier_results_stay() {
  Graph graph = make_diamond(DType::float64);
  const Graph twice = arcgrad::scale(graph, 2.0);
  graph.set_weight(0, 9.0);
  CHECK(graph.weight(0) == 9.0);
  CHECK(twice.weight(0) == 1.0);
}

void test_constructors() {
  const Graph linear = arcgrad::linear_graph(3, 5);
  CHECK(linear.num_nodes() == 4);
  CHECK(linear.num_arcs() == 15);
  CHECK(arcgrad::scalar_graph(1.5).item() == 1.5);
  const std::vector<int32_t> labels = {2, 0, 1};
  CHECK(arcgrad::chain_graph(labels).num_arcs() == 3);
  CHECK_THROWS(std::invalid_argument, "linear_graph: ", arcgrad::linear_graph(-1, 5));
}

void test_bytes_and_text() {
  for (DType dtype : {DType::float32, DType::float64}) {
    const Graph graph = make_diamond(dtype);
    const Graph read = arcgrad::from_bytes(arcgrad::to_bytes(graph));
    CHECK(read.dtype() == dtype);
    CHECK(arcgrad::equal(read, graph));
    CHECK(arcgrad::to_bytes(read) == arcgrad::to_bytes(graph));
    CHECK_CLOSE(arcgrad::from_text(arcgrad::to_text(graph)).weights_to_vector(),
                graph.weights_to_vector(), 1e-7);
  }
  const std::string bytes = arcgrad::to_bytes(make_diamond(DType::float32));
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS(std::invalid_argument, "from_bytes: ", arcgrad::from_bytes(bytes.substr(0, size)));
  CHECK_THROWS(std::invalid_argument, "from_text: ", arcgrad::from_text("0\n1\n0 x 0\n"));
  CHECK(arcgrad::to_dot(make_diamond(DType::float32)).rfind("digraph", 0) == 0);
}

void test_node_weights() {
  Graph graph(true, DType::float64);
  graph.add_node(true, false, 0.25);
  graph.add_node(false, true);
  graph.add_arc(0, 1, 2, 3, 1.0);
  graph.make_accept(1, -0.5);
  CHECK(graph.has_node_weights());
  CHECK(graph.num_arcs() == 1);
  CHECK(graph.num_weights() == 3);
  CHECK_CLOSE(graph.start_weights(), (std::vector<double>{0.25}), 0.0);
  CHECK_CLOSE(graph.accept_weights(), (std::vector<double>{-0.5}), 0.0);
  CHECK_CLOSE(graph.weights_to_vector(), (std::vector<double>{1.0}), 0.0);
  CHECK(arcgrad::viterbi_score(graph).item() == 0.75);
  graph.set_accept_weight(1, 0.5);
  CHECK(arcgrad::viterbi_score(graph).item() == 1.75);
  CHECK(arcgrad::equal(arcgrad::from_bytes(arcgrad::to_bytes(graph)), graph));
  CHECK_THROWS(std::invalid_argument, "set_start_weight: ", graph.set_start_weight(1, 0.0));
  CHECK_THROWS(std::invalid_argument, "savetxt: ", arcgrad::to_text(graph));
}

void test_files() {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string name = (folder / "arcgrad_test_graph").string();
  const Graph graph = make_diamond(DType::float64);
  arcgrad::save(name, graph);
  CHECK(arcgrad::equal(arcgrad::load(name), graph));
  arcgrad::savetxt(name, graph);
  CHECK(arcgrad::loadtxt(name).num_arcs() == 4);
  std::filesystem::remove(name);
  CHECK_THROWS(std::system_error, "load: ", arcgrad::load(name));
}

}  // namespace

int main() {
  test_building();
  test_arrays();
  test_refusals_change_nothing();
  test_weights_of_earlier_results_stay();
  test_constructors();
  test_bytes_and_text();
  test_node_weights();
  test_files();
  return failures();
}
