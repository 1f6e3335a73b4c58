#include <cmath>

#include "arcgrad/algorithms/path_chain.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/random.h"

namespace arcgrad {

Graph sample(const Graph& graph, int64_t max_length, std::optional<uint64_t> seed) {
  require(max_length >= 0, "sample", "max_length must be 0 or more, but it is ", max_length);
  const Topology& t = graph.topology();
  // In a sweep from the ends, the share of an arc is the probability of taking it; what is left at
  // an accept node is the probability of ending there.
  const PathScores sweep(
      graph.topology_ptr(), graph.weights(), t.accept(),
      {.op = "sample", .direction = Direction::reverse, .keep = true, .targets = t.start()});
  double top = kNegInf, sum = 0.0;
  for (int32_t n : t.start()) top = std::max(top, sweep.score(n));
  require(top > kNegInf, "sample", "the graph must accept a path, but it accepts none");
  for (int32_t n : t.start()) sum += std::exp(sweep.score(n) - top);

  Random random(seed);
  double left = random.uniform() * sum;
  int32_t node = -1;
  for (int32_t n : t.start()) {
    const double share = std::exp(sweep.score(n) - top);
    if (share > 0.0) node = n;
    if ((left -= share) < 0.0) break;
  }
  Column arcs;
  const Adjacency& out = sweep.slots();
  while (true) {
    left = random.uniform();
    int32_t chosen = -1;
    for (int32_t k = out.offset[node]; k < out.offset[node + 1]; ++k) {
      const double share = sweep.share(node, k);
      if (share == 0.0) continue;
      // The last possible arc also takes what rounding leaves over.
      if ((left -= share) < 0.0 || !t.is_accept(node)) chosen = k;
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
