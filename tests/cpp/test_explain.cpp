// Which kernel computes a score, and that its history may be limited without changing a result.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "arcgrad/arcgrad.h"
#include "arcgrad/ops.h"
#include "arcgrad/tokens/alignments.h"
#include "arcgrad/trellis/explain.h"
#include "check.h"

using arcgrad::Graph;

namespace {

constexpr int32_t kFrames = 40, kLabels = 24;

Graph make_emissions() {
  Graph graph = arcgrad::linear_graph(kFrames, kLabels, true, arcgrad::DType::float64);
  std::vector<double> values;
  for (int32_t i = 0; i < kFrames * kLabels; ++i) values.push_back(0.125 * ((11 * i) % 17) - 1.0);
  graph.set_weights(values);
  return graph;
}

/// One node per label, and arcs between all of them.
Graph make_bigram() {
  Graph graph(true, arcgrad::DType::float64);
  for (int32_t n = 0; n < kLabels; ++n) graph.add_node(true, true);
  for (int32_t from = 0; from < kLabels; ++from)
    for (int32_t to = 0; to < kLabels; ++to) graph.add_arc(from, to, to, to, -0.25 * (from - to));
  return graph;
}

std::string kernel_of(const Graph& graph) {
  const auto choice = arcgrad::trellis::explain({graph})[0];
  CHECK(!choice.reason.empty());
  return arcgrad::trellis::name(choice.kernel);
}

void test_choices() {
  const Graph emissions = make_emissions();
  const Graph ctc = arcgrad::ctc_graph(std::vector<int32_t>{1, 2, 2, 3}, 0, kLabels);
  CHECK(kernel_of(emissions) == "frames");
  CHECK(kernel_of(arcgrad::intersect(ctc, emissions)) == "diagonal");
  CHECK(kernel_of(arcgrad::intersect(make_bigram(), emissions)) == "dense");
  CHECK(arcgrad::trellis::explain({emissions, emissions}).size() == 2);
}

void test_history_limit() {
  const int64_t before = arcgrad::trellis::get_history_limit();
  std::vector<std::vector<double>> gradients;
  for (int64_t limit : {before, int64_t{1000}}) {
    arcgrad::trellis::set_history_limit(limit);
    CHECK(arcgrad::trellis::get_history_limit() == limit);
    const Graph bigram = make_bigram();
    arcgrad::backward(arcgrad::forward_score(arcgrad::intersect(bigram, make_emissions())));
    gradients.push_back(bigram.grad().weights_to_vector());
  }
  arcgrad::trellis::set_history_limit(before);
  CHECK_CLOSE(gradients[1], gradients[0], 1e-12);
  CHECK_THROWS(std::invalid_argument,
               "set_history_limit: ", arcgrad::trellis::set_history_limit(-1));
}

}  // namespace

int main() {
  test_choices();
  test_history_limit();
  return failures();
}
