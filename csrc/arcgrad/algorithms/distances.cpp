#include "arcgrad/algorithms/distances.h"

#include <memory>
#include <numeric>

namespace arcgrad {
namespace {

using Shared = std::shared_ptr<const Distances>;

/// Maps a tangent from the op's input to the graph on which the scores were computed.
Weights restrict_to(const Distances& distances, const Weights& tangent) {
  if (distances.arcs.empty()) return tangent;
  Weights out = Weights::zeros(distances.scores.topology().num_arcs(), DType::float64);
  ArcMap::gather(distances.arcs).apply(tangent, out, 1.0);
  return out;
}

/// Calls `write` with a gradient for the graph on which the scores were computed, and maps it back
/// to `grad`, the gradient of the op's input.
template <class Write>
void add_from(const Distances& distances, Gradient& grad, Write write) {
  if (distances.arcs.empty()) return write(grad);
  Gradient local(distances.scores.topology().num_arcs(), DType::float64);
  write(local);
  ArcMap::gather(distances.arcs).transpose().apply(local.sum(), grad.sum(), 1.0);
}

/// The sum of the deltas of each node's outputs.
Buffer<double> seed(const Distances& distances, const Weights& deltas) {
  Buffer<double> seed(static_cast<size_t>(distances.scores.topology().num_nodes()), 0.0);
  for (size_t i = 0; i < distances.nodes.size(); ++i)
    seed[distances.nodes[i]] += deltas[static_cast<int64_t>(i)];
  return seed;
}

void add_gradient(const Distances& distances, const Weights& deltas, Gradient& grad) {
  add_from(distances, grad,
           [&](Gradient& g) { distances.scores.add_vjp(seed(distances, deltas), g); });
}

/// The derivative of the gradient of distances with respect to the graph and the deltas.
class DistancesGradRule final : public Rule {
 public:
  DistancesGradRule(Shared distances, Weights deltas)
      : distances_(std::move(distances)), deltas_(std::move(deltas)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const Weights tangent = restrict_to(*distances_, deltas[0]);
    const Buffer<double> score_tangent = distances_->scores.jvp(tangent);
    if (grads[0])
      add_from(*distances_, *grads[0], [&](Gradient& g) {
        distances_->scores.add_vjp_tangent(seed(*distances_, deltas_),
                                           Buffer<double>(score_tangent.size(), 0.0), tangent,
                                           score_tangent, 1.0, g.sum());
      });
    if (grads[1])
      dispatch(grads[1]->dtype(), [&](auto kind) {
        auto out = grads[1]->sum().fill<decltype(kind)>();
        for (size_t i = 0; i < distances_->nodes.size(); ++i)
          out[i] += static_cast<decltype(kind)>(score_tangent[distances_->nodes[i]]);
      });
  }

 private:
  Shared distances_;
  Weights deltas_;
};

class DistancesRule final : public Rule {
 public:
  DistancesRule(Shared distances, Graph graph)
      : distances_(std::move(distances)), graph_(std::move(graph)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    add_gradient(*distances_, deltas[0], *grads[0]);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>&) const override {
    Gradient grad(graph_.num_weights(), graph_.dtype());
    add_gradient(*distances_, deltas[0].weights(), grad);
    const Graph inputs[] = {graph_, deltas[0]};
    std::unique_ptr<Rule> rule;
    if (tracks(inputs)) rule = std::make_unique<DistancesGradRule>(distances_, deltas[0].weights());
    return {arcgrad::record(op, graph_.topology_ptr(), grad.sum(), inputs, std::move(rule))};
  }
  void add_sources(size_t, int32_t output, std::vector<int32_t>& to) const override {
    distances_->scores.for_arcs_to(distances_->nodes[output], [&](int32_t a) {
      const int32_t arc = distances_->arcs.empty() ? a : distances_->arcs[a];
      if (arc >= 0) to.push_back(arc);
    });
  }

 private:
  Shared distances_;
  Graph graph_;
};

}  // namespace

std::unique_ptr<Rule> make_distances_rule(const char* op, const Graph& graph, Distances distances) {
  auto rule = std::make_unique<DistancesRule>(
      std::make_shared<const Distances>(std::move(distances)), graph.snapshot());
  rule->op = op;
  return rule;
}

TopologyPtr distances_topology(int64_t size) {
  Arrays arrays{2, {0}, {1}, {}, {}, {}, {}};
  arrays.src.assign(static_cast<size_t>(size), 0);
  arrays.dst.assign(static_cast<size_t>(size), 1);
  arrays.ilabel.resize(static_cast<size_t>(size));
  std::iota(arrays.ilabel.begin(), arrays.ilabel.end(), 0);
  return std::make_shared<Topology>(std::move(arrays));
}

Graph record_distances(const char* op, const Graph& graph, Distances distances, DType dtype) {
  Buffer<double> scores;
  for (int32_t n : distances.nodes) scores.push_back(distances.scores.score(n));
  TopologyPtr topology = distances_topology(std::ssize(scores));
  std::unique_ptr<Rule> rule;
  if (tracks(graph)) rule = make_distances_rule(op, graph, std::move(distances));
  return record(op, std::move(topology), Weights::from(scores, dtype), {&graph, 1},
                std::move(rule));
}

}  // namespace arcgrad
