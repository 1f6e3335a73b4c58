#include <cmath>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/grad_mode.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/random.h"

// A randomized test: random paths are drawn from both graphs, and the two strings of each path must
// have the same score in both graphs: the score of the graph composed with the strings.

namespace arcgrad {
namespace {

struct Strings {
  std::vector<int32_t> input, output;
};

/// A path chosen step by step with equal chances, whatever the weights; nothing if it gets longer
/// than `max_length`. `graph` is connected.
std::optional<Strings> random_strings(const Graph& graph, int64_t max_length, Random& random) {
  const Topology& t = graph.topology();
  const Adjacency& out = t.out();
  Strings strings;
  InterruptPoll poll;
  int32_t node = t.start()[random.below(t.start().size())];
  for (int64_t length = 0; length <= max_length; ++length) {
    poll();
    const int32_t degree = out.offset[node + 1] - out.offset[node];
    const auto choice = static_cast<int32_t>(
        random.below(static_cast<size_t>(degree) + (t.is_accept(node) ? 1 : 0)));
    if (choice == degree) return strings;
    const int32_t a = out.arc(out.offset[node] + choice);
    if (t.ilabel()[a] != kEpsilon) strings.input.push_back(t.ilabel()[a]);
    if (t.olabel()[a] != kEpsilon) strings.output.push_back(t.olabel()[a]);
    node = t.dst()[a];
  }
  return std::nullopt;
}

double score(const Graph& graph, const Strings& strings, Semiring semiring) {
  const Graph matched =
      compose(compose(chain_graph(strings.input), graph), chain_graph(strings.output));
  return (semiring == Semiring::log ? forward_score(matched) : viterbi_score(matched)).item();
}

}  // namespace

bool rand_equivalent(const Graph& a, const Graph& b, int64_t num_samples, double tol,
                     int64_t max_length, std::optional<uint64_t> seed, Semiring semiring) {
  require(num_samples >= 0, "rand_equivalent", "num_samples must be 0 or more, but it is ",
          num_samples);
  require(tol >= 0.0, "rand_equivalent", "tol must be 0 or more, but it is ", tol);
  require(max_length >= 0, "rand_equivalent", "max_length must be 0 or more, but it is ",
          max_length);
  for (const Graph* graph : {&a, &b}) require_no_failures("rand_equivalent", graph->topology());
  const GradMode off(false);
  const Graph graphs[] = {connect(a), connect(b)};
  const bool is_empty[] = {graphs[0].num_nodes() == 0, graphs[1].num_nodes() == 0};
  if (is_empty[0] && is_empty[1]) return true;
  Random random(seed);
  bool has_compared = num_samples == 0;
  for (int64_t i = 0; i < num_samples; ++i) {
    poll_interrupt();
    const auto turn = static_cast<size_t>(i % 2);
    const auto strings =
        random_strings(graphs[is_empty[turn] ? 1 - turn : turn], max_length, random);
    if (!strings) continue;
    has_compared = true;
    const double first = score(graphs[0], *strings, semiring);
    const double second = score(graphs[1], *strings, semiring);
    if (first != second && !(std::abs(first - second) <= tol)) return false;
  }
  require(has_compared, "rand_equivalent", "some path must have at most max_length = ", max_length,
          " arcs, but all ", num_samples, " that were drawn are longer; raise max_length");
  return true;
}

}  // namespace arcgrad
