#include <numeric>
#include <utility>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/distances.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/label_push.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Weight pushing (Mohri 1997, "Finite-state transducers in language and speech processing"). With
// the potential d(n), the score of all paths from node n to an end, the arc (s, t) gets the weight
// + d(t) - d(s), a start node s the weight + d(s), and an accept node n the weight - d(n). These
// terms cancel along a path. Towards the end, potentials are scores from the starts, and signs
// change. Potentials are an op of their own, and the result gathers them.

namespace arcgrad {
namespace {

constexpr char kOp[] = "push";

Graph push_weights(const Graph& graph, bool to_start, Semiring semiring) {
  const Topology& t = graph.topology();
  const TopologyPtr& all = expanded(graph.topology_ptr());
  const auto start = all->start(), accept = all->accept();
  PathScores scores(all, graph.weights(), to_start ? accept : start,
                    {.op = kOp,
                     .direction = to_start ? Direction::reverse : Direction::forward,
                     .semiring = semiring,
                     .keep = tracks(graph),
                     .targets = to_start ? start : accept});
  // Nodes without a possible path to that end have no potential.
  Column node(static_cast<size_t>(t.num_nodes()), -1), kept;
  int32_t num_nodes = 0;
  for (int32_t n = 0; n < t.num_nodes(); ++n)
    if (scores.score(n) > kNegInf) node[n] = num_nodes++;
  const auto src = t.src(), dst = t.dst();
  Column plus, minus;
  InterruptPoll poll;
  for (int32_t a = 0; a < t.num_arcs(); ++a) {
    poll();
    if (node[src[a]] < 0 || node[dst[a]] < 0) continue;
    kept.push_back(a);
    plus.push_back(to_start ? dst[a] : src[a]);
    minus.push_back(to_start ? src[a] : dst[a]);
  }
  Arrays arrays = renumber(t, node, num_nodes, kept);
  arrays.has_node_weights = true;
  // The node weights: at the end where weights are pushed to the potential is added.
  kept.resize(plus.size());
  const auto add = [&](int32_t n, int32_t weight, bool is_added) {
    if (node[n] < 0) return;
    kept.push_back(weight);
    plus.push_back(is_added ? n : -1);
    minus.push_back(is_added ? -1 : n);
  };
  for (const int32_t n : t.start()) add(n, t.start_weight(n), to_start);
  for (const int32_t n : t.accept()) add(n, t.accept_weight(n), !to_start);
  Column nodes(static_cast<size_t>(t.num_nodes()));
  std::iota(nodes.begin(), nodes.end(), 0);
  const Graph potentials =
      record_distances(kOp, graph, {std::move(scores), {}, std::move(nodes)}, DType::float64);
  const Graph pushed = record_moves(kOp, std::move(arrays),
                                    {{graph, ArcMap::gather(std::move(kept))},
                                     {potentials, ArcMap::gather(std::move(plus))},
                                     {potentials, ArcMap::gather(std::move(minus)), -1.0}});
  return record_cast(pushed, graph.dtype());
}

}  // namespace

Graph push(const Graph& graph, bool weights, bool labels, bool to_start, Semiring semiring) {
  require(weights || labels, kOp, "weights or labels must be pushed, but both are False");
  require_no_failures(kOp, graph.topology());
  const Graph useful = connect(graph);
  const Graph pushed = weights ? push_weights(useful, to_start, semiring) : useful;
  if (!labels) return pushed;
  return to_start ? push_labels(kOp, pushed) : reverse(push_labels(kOp, reverse(pushed)));
}

}  // namespace arcgrad
