#include "arcgrad/algorithms/path_scores.h"

#include <algorithm>
#include <limits>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/path_scores_acyclic.h"
#include "arcgrad/algorithms/path_scores_best.h"
#include "arcgrad/algorithms/path_scores_cyclic.h"
#include "arcgrad/algorithms/path_scores_derivatives.h"
#include "arcgrad/runtime/error.h"

// Single-source shortest distance in the log or tropical semiring (Mohri 2002, "Semiring frameworks
// and algorithms for shortest-distance problems"):
//
//   score(d) = [d is a source] (+) the (+)-sum over arcs (s, d) of score(s) + w,
//
// where (+) is logadd or max. Without cycles, one pass in topological order, O(nodes + arcs). With
// cycles, one strongly connected component after the other: in the log semiring each is a linear
// system, O(n^3); in the tropical semiring Bellman-Ford.
//
// The local posterior of an arc is p = exp(score(s) + w - score(d)); over the arcs of d they sum to
// at most 1. All derivatives are passes over these probabilities, so nothing overflows:
// backward, mass(s) += p mass(d), and the gradient of the arc is p mass(d); forward, the tangent of
// score(d) is the mean of tangent(s) + tangent(w) under p. In the tropical semiring p is 1 for the
// best arc and 0 for the others. A source with a weight adds a term exp(w) to the sum of its node,
// which has a local posterior like that of an arc.

namespace arcgrad {

void require_scorable(const char* op, const Topology& topology, const Weights& weights) {
  dispatch(weights.dtype(), [&](auto kind) {
    const auto values = weights.view<decltype(kind)>();
    int32_t bad = 0;  // an integer, so that the loop is vectorized
    for (auto w : values) bad |= w < std::numeric_limits<decltype(kind)>::infinity() ? 0 : 1;
    if (!bad) [[likely]]
      return;
    for (size_t a = 0; a < values.size(); ++a)
      require(values[a] < std::numeric_limits<decltype(kind)>::infinity(), op,
              "weights must be finite or -inf, but ",
              describe_weight(topology, static_cast<int64_t>(a)),
              is_node_weight(topology, static_cast<int64_t>(a)) ? " is " : " has weight ",
              values[a]);
  });
}

PathScores::PathScores(TopologyPtr topology, const Weights& weights,
                       std::span<const int32_t> sources, const PathOptions& options) {
  const Topology& t = *topology;
  require_no_failures(options.op, t);
  table_.topology = std::move(topology);
  table_.keep = options.keep;
  const bool is_forward = options.direction == Direction::forward;
  const bool is_log = options.semiring == Semiring::log;
  const bool is_acyclic = t.order().is_acyclic();
  // Arcs are stored in the order of their source nodes, and that order is topological.
  const bool is_in_order = is_acyclic && t.order().nodes.empty() && t.out().arcs.empty();
  if (is_in_order && is_log && !options.exact_sums && is_forward) {
    acyclic_ = AcyclicForward::run(t.out(), weights, sources, options.source_weights, options.keep);
    if (acyclic_) return;
  }
  require_scorable(options.op, t, weights);
  table_.is_reverse = !is_forward;
  table_.order = t.order().nodes;
  if (!is_forward) std::reverse(table_.order.begin(), table_.order.end());
  table_.adjacency = is_forward ? &t.in() : &t.out();
  const auto num_nodes = static_cast<size_t>(t.num_nodes());
  table_.is_source.resize(num_nodes, 0);
  for (int32_t n : sources) table_.is_source[n] = 1;
  if (options.source_weights >= 0) set_source_weights(weights, sources, options.source_weights);
  if (options.keep) {
    // The acyclic recursions in the log semiring write every entry.
    table_.term_buffer = is_acyclic && is_log ? Weights::uninitialized(t.num_arcs(), DType::float64)
                                              : Weights::zeros(t.num_arcs(), DType::float64);
    table_.term = table_.term_buffer.fill<double>().data();
    table_.inverse_sum.assign(num_nodes, 0.0);
  }
  if (!is_acyclic)
    run_cyclic(table_, weights, sources, options);
  else if (!is_log && is_in_order && !is_forward && !options.keep && reaches_far(t.out()))
    run_best_far(table_, weights);
  else if (!is_log)
    run_best(table_, weights);
  else if (options.exact_sums)
    run_acyclic_exact(table_, weights);
  else
    run_acyclic(table_, weights);
  if (!options.keep || is_log) return;
  for (size_t n = 0; n < num_nodes; ++n)
    if (const int32_t slot = table_.best_slot[n]; slot >= 0)
      table_.term[slot] = table_.inverse_sum[n] = 1.0;
  for (WeightedSource& source : table_.sources)
    if (table_.is_source[source.node] && table_.best_slot[source.node] < 0)
      source.term = table_.inverse_sum[source.node] = 1.0;
}

void PathScores::set_source_weights(const Weights& weights, std::span<const int32_t> sources,
                                    int32_t first) {
  table_.source_of.resize(table_.is_source.size());  // read for sources only
  table_.sources.reserve(sources.size());
  dispatch(weights.dtype(), [&](auto kind) {
    const auto* score = weights.view<decltype(kind)>().data() + first;
    for (int32_t k = 0; k < static_cast<int32_t>(sources.size()); ++k) {
      const int32_t n = sources[k];
      table_.source_of[n] = k;
      table_.sources.push_back({n, first + k, static_cast<double>(score[k])});
      table_.is_source[n] = score[k] > kNegInf ? 1 : 0;
    }
  });
}

bool PathScores::precedes(int32_t node, int32_t other) const {
  return best_path_precedes(table_, node, other);
}

Column PathScores::best_path(int32_t node) const { return trace_back(table_, node); }

void PathScores::add_vjp(Buffer<double> seed, Gradient& grad) const {
  if (acyclic_) return acyclic_->add_vjp(seed, grad);
  arcgrad::add_vjp(table_, std::move(seed), grad.sum());
}

Buffer<double> PathScores::jvp(const Weights& tangent) const {
  return acyclic_ ? acyclic_->jvp(tangent) : arcgrad::jvp(table_, tangent);
}

void PathScores::add_vjp_tangent(Buffer<double> seed, Buffer<double> seed_tangent,
                                 const Weights& tangent, const Buffer<double>& score_tangent,
                                 double factor, Weights& grad) const {
  if (acyclic_)
    return acyclic_->add_vjp_tangent(seed, seed_tangent, tangent, score_tangent, factor, grad);
  arcgrad::add_vjp_tangent(table_, std::move(seed), std::move(seed_tangent), tangent, score_tangent,
                           factor, grad);
}

}  // namespace arcgrad
