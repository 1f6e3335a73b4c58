#include <algorithm>
#include <cmath>
#include <utility>

#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/random.h"

// Ancestral sampling: with scores from the accept nodes backwards, the local posterior of an arc is
// the probability of taking it at its source; the rest, at an accept node, is the probability of
// ending there.

namespace arcgrad {
namespace {

constexpr char kOp[] = "sample";

/// Draws paths of a graph.
class PathSampler {
 public:
  PathSampler(const Graph& graph, int64_t max_length)
      : topology_(expanded(graph.topology())),
        max_length_(max_length),
        most_arcs_(max_length + (graph.has_node_weights() ? 2 : 0)),
        scores_(expanded(graph.topology_ptr()), graph.weights(), topology_.accept(),
                {.op = kOp,
                 .direction = Direction::reverse,
                 .keep = true,
                 .targets = topology_.start()}) {
    for (int32_t n : topology_.start()) top_ = std::max(top_, scores_.score(n));
    require(top_ > kNegInf, kOp, "the graph must accept a path, but it accepts none");
    for (int32_t n : topology_.start()) sum_ += probability_of_start(n);
  }

  /// The arcs of a path.
  Column draw(Random& random) {
    int32_t node = draw_start(random);
    Column arcs;
    const Adjacency& out = scores_.slots();
    while (true) {
      poll_(1 + out.offset[node + 1] - out.offset[node]);
      const bool may_end = topology_.is_accept(node);
      double left = random.uniform();
      int32_t chosen = -1;
      for (int32_t k = out.offset[node]; k < out.offset[node + 1]; ++k) {
        const double probability = scores_.local_posterior(node, k);
        if (probability == 0.0) continue;
        // The last possible arc also takes the rounding error of the sum.
        if ((left -= probability) < 0.0 || !may_end) chosen = k;
        if (left < 0.0) break;
      }
      if (chosen < 0 || (left >= 0.0 && may_end)) return arcs;
      require(std::ssize(arcs) < most_arcs_, kOp,
              "the path must have at most max_length arcs, but it has more than ", max_length_);
      arcs.push_back(out.arc(chosen));
      node = out.node[chosen];
    }
  }

 private:
  /// The probability of starting at a node, times `sum_`.
  double probability_of_start(int32_t node) const { return std::exp(scores_.score(node) - top_); }

  int32_t draw_start(Random& random) const {
    double left = random.uniform() * sum_;
    int32_t node = -1;
    for (int32_t n : topology_.start()) {
      const double probability = probability_of_start(n);
      if (probability > 0.0) node = n;
      if ((left -= probability) < 0.0) break;
    }
    return node;
  }

  const Topology& topology_;
  int64_t max_length_, most_arcs_;
  PathScores scores_;
  double top_ = kNegInf, sum_ = 0.0;
  InterruptPoll poll_;
};

}  // namespace

std::vector<Graph> sample(const Graph& graph, int64_t n, int64_t max_length,
                          std::optional<uint64_t> seed) {
  require(n >= 0, "sample", "n must be 0 or more, but it is ", n);
  require(max_length >= 0, "sample", "max_length must be 0 or more, but it is ", max_length);
  PathSampler sampler(graph, max_length);
  Random random(seed);
  std::vector<Graph> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(record_path(kOp, graph, sampler.draw(random)));
  return out;
}

Graph sample(const Graph& graph, int64_t max_length, std::optional<uint64_t> seed) {
  return sample(graph, 1, max_length, seed).front();
}

}  // namespace arcgrad
