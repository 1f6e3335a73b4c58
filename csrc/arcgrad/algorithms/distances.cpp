#include "arcgrad/algorithms/distances.h"

#include <numeric>

namespace arcgrad {
namespace {

using Parts = std::shared_ptr<const std::vector<Distances>>;

/// `direction` restricted to the arcs of a part.
Weights restrict_to(const Distances& part, const Weights& direction) {
  if (part.arcs.empty()) return direction;
  Weights out = Weights::zeros(part.sweep.topology().num_arcs(), DType::float64);
  ArcMap::gather(part.arcs).apply(direction, out, 1.0);
  return out;
}

/// Calls `write` with a gradient over the arcs of a part, and adds that to `grad`.
template <class Write>
void add_from(const Distances& part, Weights& grad, Write write) {
  if (part.arcs.empty()) return write(grad);
  Weights local = Weights::zeros(part.sweep.topology().num_arcs(), DType::float64);
  write(local);
  ArcMap::gather(part.arcs).transpose().apply(local, grad, 1.0);
}

/// Seeds for each node of a part, from one delta per output starting at `first`.
Buffer<double> seeds(const Distances& part, const Weights& deltas, int64_t first) {
  Buffer<double> seed(static_cast<size_t>(part.sweep.topology().num_nodes()), 0.0);
  for (size_t i = 0; i < part.nodes.size(); ++i)
    seed[part.nodes[i]] += deltas[first + static_cast<int64_t>(i)];
  return seed;
}

void add_gradient(const std::vector<Distances>& parts, const Weights& deltas, Weights& grad) {
  int64_t first = 0;
  for (const Distances& part : parts) {
    add_from(part, grad, [&](Weights& g) { part.sweep.pull_back(seeds(part, deltas, first), g); });
    first += static_cast<int64_t>(part.nodes.size());
  }
}

/// Differentiates the gradient of distances with respect to the graph and the deltas.
class GradientRule final : public Rule {
 public:
  GradientRule(Parts parts, Weights deltas)
      : parts_(std::move(parts)), deltas_(std::move(deltas)) {}

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    int64_t first = 0;
    for (const Distances& part : *parts_) {
      const Weights direction = restrict_to(part, deltas[0]);
      const Buffer<double> moved = part.sweep.push_forward(direction);
      if (grads[0])
        add_from(part, *grads[0], [&](Weights& g) {
          part.sweep.pull_back_moved(seeds(part, deltas_, first), Buffer<double>(moved.size(), 0.0),
                                     direction, moved, 1.0, g);
        });
      if (grads[1])
        dispatch(grads[1]->dtype(), [&](auto kind) {
          auto out = grads[1]->fill<decltype(kind)>();
          for (size_t i = 0; i < part.nodes.size(); ++i)
            out[static_cast<size_t>(first) + i] +=
                static_cast<decltype(kind)>(moved[part.nodes[i]]);
        });
      first += static_cast<int64_t>(part.nodes.size());
    }
  }

 private:
  Parts parts_;
  Weights deltas_;
};

class DistancesRule final : public Rule {
 public:
  DistancesRule(Parts parts, Graph graph) : parts_(std::move(parts)), graph_(std::move(graph)) {}

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    add_gradient(*parts_, deltas[0], *grads[0]);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>&) const override {
    Weights grad = Weights::zeros(graph_.num_arcs(), graph_.dtype());
    add_gradient(*parts_, deltas[0].weights(), grad);
    const Graph inputs[] = {graph_, deltas[0]};
    std::unique_ptr<Rule> rule;
    if (tracks(inputs)) rule = std::make_unique<GradientRule>(parts_, deltas[0].weights());
    return {arcgrad::record(op, graph_.topology_ptr(), std::move(grad), inputs, std::move(rule))};
  }

 private:
  Parts parts_;
  Graph graph_;
};

}  // namespace

Graph record_distances(const char* op, const Graph& graph, std::vector<Distances> parts,
                       DType dtype) {
  Buffer<double> scores;
  for (const Distances& part : parts)
    for (int32_t n : part.nodes) scores.push_back(part.sweep.score(n));
  Arrays arrays{2, {0}, {1}, {}, {}, {}, {}};
  arrays.src.assign(scores.size(), 0);
  arrays.dst.assign(scores.size(), 1);
  arrays.ilabel.resize(scores.size());
  std::iota(arrays.ilabel.begin(), arrays.ilabel.end(), 0);
  std::unique_ptr<Rule> rule;
  if (tracks(graph))
    rule = std::make_unique<DistancesRule>(
        std::make_shared<const std::vector<Distances>>(std::move(parts)), graph.snapshot());
  return record(op, std::make_shared<Topology>(std::move(arrays)), Weights::from(scores, dtype),
                {&graph, 1}, std::move(rule));
}

}  // namespace arcgrad
