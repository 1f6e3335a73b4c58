#include <algorithm>
#include <limits>
#include <utility>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/expectation.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

// With both graphs deterministic, a string has one path in each. The pairs of nodes that strings of
// p reach form a graph with the paths of p, on whose arcs the weights of p and of q can be
// compared: KL(p || q) = E_p[score in p - score in q] - Z_p + Z_q.

namespace arcgrad {
namespace {

constexpr char kOp[] = "kl_divergence";

void check(const char* name, const Graph& graph) {
  require_no_failures(kOp, graph.topology());
  require(graph.topology().is_acceptor(), kOp, "both graphs must be acceptors, but ", name,
          " has an arc with different labels");
  require(is_deterministic(graph), kOp,
          "both graphs must be deterministic, so that a string has one path, but ", name,
          " is not; use determinize");
}

/// The strings of p as paths through both graphs.
struct Matched {
  Arrays arrays;
  Column p, q;             // the weights of both graphs, per weight
  bool is_covered = true;  // whether q accepts every string of p
};

Matched match(const Graph& p, const Graph& q) {
  const Topology &tp = p.topology(), &tq = q.topology();
  const Weights wp = p.weights(), wq = q.weights();
  // Arcs and ends of weight -inf do not exist here.
  const auto ends = [](const Topology& t, const Weights& weights, int32_t node) {
    return t.is_accept(node) && (!t.has_node_weights() || weights[t.accept_weight(node)] > kNegInf);
  };
  Column accept;
  for (const int32_t n : tp.accept())
    if (ends(tp, wp, n)) accept.push_back(n);
  Buffer<uint8_t> leads_to_end(static_cast<size_t>(tp.num_nodes()), 0);
  mark_reachable(
      tp.in(), accept, [&](int32_t k) { return wp[tp.in().arc(k)] > kNegInf; }, 1, leads_to_end);
  const LabelIndex& index = tq.index(Side::input);
  PairIds ids(kOp, tp.num_nodes(), tq.num_nodes(), 1);
  Matched out;
  Arrays& to = out.arrays;
  InterruptPoll poll;
  to.start = {0};
  ids[ids.key({tp.start()[0], tq.start()[0]})];
  for (int32_t n = 0; n < ids.size(); ++n) {
    const Pair pair = ids.pair(n);
    if (ends(tp, wp, pair.first)) {
      if (!ends(tq, wq, pair.second)) out.is_covered = false;
      to.accept.push_back(n);
    }
    const auto first = index.label.begin() + index.offset[pair.second];
    const auto last = index.label.begin() + index.offset[pair.second + 1];
    for (int32_t k = tp.out().offset[pair.first]; k < tp.out().offset[pair.first + 1]; ++k) {
      poll();
      const int32_t a = tp.out().arc(k), label = tp.ilabel()[a];
      if (wp[a] == kNegInf || !leads_to_end[tp.dst()[a]]) continue;
      const auto found = std::lower_bound(first, last, label);
      const int32_t b =
          found == last || *found != label ? -1 : index.arc[found - index.label.begin()];
      if (b < 0 || wq[b] == kNegInf) out.is_covered = false;
      if (!out.is_covered) return out;
      require_size(kOp, "arcs", std::ssize(to.src) + 1);
      to.src.push_back(n);
      to.dst.push_back(ids[ids.key({tp.dst()[a], tq.dst()[b]})]);
      to.ilabel.push_back(label);
      out.p.push_back(a);
      out.q.push_back(b);
    }
  }
  to.num_nodes = ids.size();
  to.has_node_weights = tp.has_node_weights() || tq.has_node_weights();
  if (to.has_node_weights) {
    out.p.push_back(tp.start_weight(tp.start()[0]));
    out.q.push_back(tq.start_weight(tq.start()[0]));
    for (const int32_t n : to.accept) {
      out.p.push_back(tp.accept_weight(ids.pair(n).first));
      out.q.push_back(tq.accept_weight(ids.pair(n).second));
    }
  }
  return out;
}

/// An infinite divergence, which has no gradient.
Graph record_infinity(const Graph& p, const Graph& q) {
  const Graph inputs[] = {p, q};
  const Moved nothing[] = {{p, ArcMap::gather({})}, {q, ArcMap::gather({})}};
  std::unique_ptr<Rule> rule;
  if (tracks(inputs)) rule = make_moves_rule(nothing);
  return record(kOp, scalar_topology(), Weights::scalar(std::numeric_limits<double>::infinity()),
                inputs, std::move(rule));
}

}  // namespace

Graph kl_divergence(const Graph& p, const Graph& q) {
  check("the first", p);
  check("the second", q);
  joined(kOp, p.topology().symbols().input, q.topology().symbols().input);  // they must agree
  const auto partition = partition_of(kOp, p);
  const Topology& t = q.topology();
  if (t.start().empty() ||
      (t.has_node_weights() && q.weights()[t.start_weight(t.start()[0])] == kNegInf))
    return record_infinity(p, q);
  Matched matched = match(p, q);
  if (!matched.is_covered) return record_infinity(p, q);
  const auto topology = std::make_shared<const Topology>(std::move(matched.arrays));
  const Graph on_p = record_moves(kOp, topology, {{p, ArcMap::gather(std::move(matched.p))}});
  const Graph on_q = record_moves(kOp, topology, {{q, ArcMap::gather(std::move(matched.q))}});
  const Graph mean =
      record_expectation(kOp, on_p, partition_of(kOp, on_p), record_sum(kOp, on_p, on_q, -1.0));
  const Graph ratio =
      record_sum(kOp, forward_score_of_arcs(kOp, q), record_log_partition(kOp, p, partition), -1.0);
  return record_sum(kOp, mean, ratio, 1.0);
}

}  // namespace arcgrad
