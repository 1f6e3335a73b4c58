#include <algorithm>
#include <cmath>
#include <utility>

#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

// An arc is kept if before(source) + weight + after(destination), the score of all paths through
// it, is at most `threshold` below the score of the graph. In the tropical semiring these are the
// best paths; in the log semiring the difference is the logarithm of the posterior. Nodes are kept
// by the same rule, and every kept arc joins kept nodes. Cost: two passes over the arcs.

namespace arcgrad {

Graph prune(const Graph& graph, double threshold, Semiring semiring) {
  constexpr const char* kOp = "prune";
  require(threshold >= 0.0, kOp, "the threshold must be 0 or more, but it is ", threshold);
  const Topology& t = graph.topology();
  const Weights weights = graph.weights();
  const TopologyPtr& all = expanded(graph.topology_ptr());
  const auto scores = [&](std::span<const int32_t> sources, Direction direction) {
    return PathScores(all, weights, sources,
                      {.op = kOp, .direction = direction, .semiring = semiring});
  };
  const PathScores before = scores(all->start(), Direction::forward);
  const PathScores after = scores(all->accept(), Direction::reverse);
  double total = kNegInf;
  for (const int32_t n : all->accept())
    total = semiring == Semiring::log ? logadd(total, before.score(n))
                                      : std::max(total, before.score(n));
  // The best paths stay although their sums are rounded differently at each arc.
  constexpr double kRounding = 1e-12;
  const double least = total - threshold - kRounding * (1.0 + std::abs(total));
  const auto is_kept = [&](double score) { return score > kNegInf && score >= least; };

  Column node(static_cast<size_t>(t.num_nodes()), -1), arcs;
  int32_t num_nodes = 0;
  for (int32_t n = 0; n < t.num_nodes(); ++n)
    if (is_kept(before.score(n) + after.score(n))) node[n] = num_nodes++;
  const auto src = t.src(), dst = t.dst();
  for (int32_t a = 0; a < t.num_arcs(); ++a)
    if (node[src[a]] >= 0 && node[dst[a]] >= 0 &&
        is_kept(before.score(src[a]) + weights[a] + after.score(dst[a])))
      arcs.push_back(a);
  // With node weights, a path that starts or ends at a kept node may be too bad.
  const auto src_all = all->src(), dst_all = all->dst();
  const auto is_kept_end = [&](int32_t k) {
    return is_kept(before.score(src_all[k]) + weights[k] + after.score(dst_all[k]));
  };
  Arrays arrays = renumber(t, node, num_nodes, arcs, is_kept_end);
  return record_moves(kOp, std::move(arrays), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
