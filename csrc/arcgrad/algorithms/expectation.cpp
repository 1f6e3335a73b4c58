#include "arcgrad/algorithms/expectation.h"

#include <cmath>
#include <utility>

#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// With p the distribution over paths, E[c] = sum over arcs of posterior * cost is the derivative of
// the log partition along the costs, so one Jacobian-vector product computes it. Its gradient with
// respect to the costs is the posterior of each arc, and with respect to the weights the Hessian of
// the log partition times the costs.
//
// The second derivative needs a third derivative of the log partition. It comes from a graph of two
// layers, whose paths change from the first layer to the second along exactly one arc, times the
// cost of that arc. Its partition function is the one of the graph times E[c], and has the
// derivatives of LogPartition. Positive and negative costs take a graph each.

namespace arcgrad {
namespace {

/// The costs as a tangent in float64; arcs that no path takes cost 0.
Weights to_tangent(const char* op, const Graph& graph, const Weights& costs) {
  const Weights weights = graph.weights();
  Weights tangent = Weights::uninitialized(costs.size(), DType::float64);
  const auto out = tangent.fill<double>();
  for (int64_t a = 0; a < costs.size(); ++a) {
    const double cost = costs[a];
    const bool is_possible = weights[a] > kNegInf;
    require(!is_possible || std::isfinite(cost), op, "costs must be finite, but that of ",
            describe_weight(graph.topology(), a), " is ", cost);
    out[a] = is_possible ? cost : 0.0;
  }
  return tangent;
}

double dot(const Weights& a, const Weights& b) {
  double sum = 0.0;
  for (int64_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

/// The graph of two layers for the costs of one sign. Node n has the copies 2n and 2n + 1, and arcs
/// are ordered by source, so that a topological order stays one.
struct Layers {
  Layers(const Topology& t, const Weights& weights, const Weights& costs, double sign) {
    require_size("expected", "nodes", 2 * int64_t{t.num_nodes()});
    require_size("expected", "arcs", 3 * int64_t{t.num_arcs()});
    Arrays arrays;
    arrays.num_nodes = 2 * t.num_nodes();
    for (const int32_t n : t.start()) arrays.start.push_back(2 * n);
    for (const int32_t n : t.accept()) arrays.accept.push_back(2 * n + 1);
    std::vector<double> values;
    const auto add = [&](int32_t arc, int32_t src, int32_t dst, double weight) {
      arrays.src.push_back(src);
      arrays.dst.push_back(dst);
      values.push_back(weight);
      arc_of.push_back(arc);
    };
    const Adjacency& out = t.out();
    InterruptPoll poll;
    for (int32_t n = 0; n < t.num_nodes(); ++n) {
      const int32_t begin = out.offset[n], end = out.offset[n + 1];
      poll(1 + end - begin);
      for (int32_t k = begin; k < end; ++k) {
        const int32_t a = out.arc(k), dst = 2 * out.node[k];
        const double cost = sign * costs[a];
        add(a, 2 * n, dst, weights[a]);
        if (cost > 0.0) add(a, 2 * n, dst + 1, weights[a] + std::log(cost));
      }
      for (int32_t k = begin; k < end; ++k)
        add(out.arc(k), 2 * n + 1, 2 * out.node[k] + 1, weights[out.arc(k)]);
    }
    arrays.ilabel.assign(values.size(), kEpsilon);
    graph = Graph(std::make_shared<Topology>(std::move(arrays)), Weights::from(values));
  }

  Graph graph{nullptr};
  Column arc_of;  // of the arcs of the graph
};

/// Adds to `grad` `factor` times the Hessian of E[max(sign * costs, 0)] times `tangent`.
void add_expectation_hvp(const char* op, const Graph& graph, const LogPartition& partition,
                         const Weights& costs, const Weights& tangent, double sign, double factor,
                         Weights& grad) {
  const Layers layers(expanded(graph.topology()), graph.weights(), costs, sign);
  const LogPartition layered(op, layers.graph, true);
  if (layered.value() == kNegInf) return;  // there is no cost of this sign
  const ArcMap fold = ArcMap::gather(layers.arc_of).transpose();
  const auto size = static_cast<int64_t>(layers.arc_of.size());
  Weights tangent_of_layers = Weights::zeros(size, DType::float64);
  fold.transpose().apply(tangent, tangent_of_layers, 1.0);

  // E = exp(layered - partition), so with g the difference of the gradients of the two logarithms
  // and H that of their Hessians, the Hessian of E times t is E ((g . t) g + H t).
  const double mean = std::exp(layered.value() - partition.value());
  Gradient posteriors(size, DType::float64);
  layered.add_posteriors(1.0, posteriors);
  Weights hvp = Weights::zeros(size, DType::float64);
  layered.add_hvp(tangent_of_layers, 1.0, hvp);

  Gradient difference(tangent.size(), DType::float64);
  partition.add_posteriors(-1.0, difference);
  fold.apply(posteriors.sum(), difference.sum(), 1.0);
  Weights total = Weights::zeros(tangent.size(), DType::float64);
  partition.add_hvp(tangent, -1.0, total);
  fold.apply(hvp, total, 1.0);
  ArcMap::identity().apply(difference.sum(), total, dot(difference.sum(), tangent));
  ArcMap::identity().apply(total, grad, factor * sign * mean);
}

/// What the derivatives of an expectation need.
struct Expectation {
  Graph graph;
  std::shared_ptr<const LogPartition> partition;
  Weights costs;  // as a tangent
};

/// The derivative of delta * (Hessian of the log partition) * costs by the graph, costs and delta.
class ExpectationGradRule final : public Rule {
 public:
  ExpectationGradRule(Expectation expectation, double delta, Weights hvp)
      : e_(std::move(expectation)), delta_(delta), hvp_(std::move(hvp)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const Weights tangent = deltas[0].cast(DType::float64);
    if (grads[0])
      for (const double sign : {1.0, -1.0})
        add_expectation_hvp(op, e_.graph, *e_.partition, e_.costs, tangent, sign, delta_,
                            grads[0]->sum());
    if (grads[1]) e_.partition->add_hvp(tangent, delta_, grads[1]->sum());
    if (grads[2])
      ArcMap::identity().apply(Weights::scalar(dot(hvp_, tangent)), grads[2]->sum(), 1.0);
  }

 private:
  Expectation e_;
  double delta_;
  Weights hvp_;
};

class ExpectationRule final : public Rule {
 public:
  ExpectationRule(Expectation expectation, Graph costs)
      : e_(std::move(expectation)), costs_(std::move(costs)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const double delta = deltas[0][0];
    if (grads[0]) e_.partition->add_hvp(e_.costs, delta, grads[0]->sum());
    if (grads[1]) e_.partition->add_posteriors(delta, *grads[1]);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    std::vector<Graph> grads(2, nullptr);
    if (wanted[0]) {
      const double delta = deltas[0].item();
      Weights hvp = Weights::zeros(e_.graph.num_weights(), DType::float64);
      e_.partition->add_hvp(e_.costs, 1.0, hvp);
      Weights value = Weights::zeros(hvp.size(), e_.graph.dtype());
      ArcMap::identity().apply(hvp, value, delta);
      const Graph inputs[] = {e_.graph, costs_, deltas[0]};
      std::unique_ptr<Rule> rule;
      if (tracks(inputs)) rule = std::make_unique<ExpectationGradRule>(e_, delta, std::move(hvp));
      grads[0] =
          arcgrad::record(op, e_.graph.topology_ptr(), std::move(value), inputs, std::move(rule));
    }
    if (wanted[1])
      grads[1] = record_posteriors(op, e_.graph, e_.partition, deltas[0], costs_.dtype());
    return grads;
  }

 private:
  Expectation e_;
  Graph costs_;
};

}  // namespace

std::shared_ptr<const LogPartition> partition_of(const char* op, const Graph& graph) {
  auto partition = std::make_shared<const LogPartition>(op, graph, true);
  require(partition->value() > kNegInf, op, "the graph must accept a path, but it accepts none");
  return partition;
}

Graph record_expectation(const char* op, const Graph& graph,
                         std::shared_ptr<const LogPartition> partition, const Graph& costs) {
  Weights tangent = to_tangent(op, graph, costs.weights());
  Weights value = Weights::scalar(partition->jvp(tangent));
  const Graph inputs[] = {graph, costs};
  std::unique_ptr<Rule> rule;
  if (tracks(inputs))
    rule = std::make_unique<ExpectationRule>(
        Expectation{graph.snapshot(), std::move(partition), std::move(tangent)}, costs.snapshot());
  return record(op, scalar_topology(), std::move(value), inputs, std::move(rule));
}

}  // namespace arcgrad
