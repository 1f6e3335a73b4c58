#include <cmath>

#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/random.h"

// Ancestral sampling: with scores from the accept nodes backwards, the local posterior of an arc is
// the probability of taking it at its source; the rest, at an accept node, is the probability of
// ending there.

namespace arcgrad {

Graph sample(const Graph& graph, int64_t max_length, std::optional<uint64_t> seed) {
  require(max_length >= 0, "sample", "max_length must be 0 or more, but it is ", max_length);
  const Topology& t = graph.topology();
  const PathScores scores(
      graph.topology_ptr(), graph.weights(), t.accept(),
      {.op = "sample", .direction = Direction::reverse, .keep = true, .targets = t.start()});
  double top = kNegInf, sum = 0.0;
  for (int32_t n : t.start()) top = std::max(top, scores.score(n));
  require(top > kNegInf, "sample", "the graph must accept a path, but it accepts none");
  for (int32_t n : t.start()) sum += std::exp(scores.score(n) - top);

  Random random(seed);
  double left = random.uniform() * sum;
  int32_t node = -1;
  for (int32_t n : t.start()) {
    const double probability = std::exp(scores.score(n) - top);  // times `sum`
    if (probability > 0.0) node = n;
    if ((left -= probability) < 0.0) break;
  }
  Column arcs;
  const Adjacency& out = scores.slots();
  InterruptPoll poll;
  while (true) {
    poll(1 + out.offset[node + 1] - out.offset[node]);
    left = random.uniform();
    int32_t chosen = -1;
    for (int32_t k = out.offset[node]; k < out.offset[node + 1]; ++k) {
      const double probability = scores.local_posterior(node, k);
      if (probability == 0.0) continue;
      // The last possible arc also takes the rounding error of the sum.
      if ((left -= probability) < 0.0 || !t.is_accept(node)) chosen = k;
      if (left < 0.0) break;
    }
    if (chosen < 0 || (left >= 0.0 && t.is_accept(node))) break;
    require(static_cast<int64_t>(arcs.size()) < max_length, "sample",
            "the path must have at most max_length arcs, but it has more than ", max_length);
    arcs.push_back(out.arc(chosen));
    node = out.node[chosen];
  }
  return record_path("sample", graph, std::move(arcs));
}

}  // namespace arcgrad
