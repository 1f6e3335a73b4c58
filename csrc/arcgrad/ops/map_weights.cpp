#include <utility>

#include "arcgrad/autograd/tape.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

// Weight a becomes f(w_a). The caller has computed f and its derivatives at all weights, so that
// the tape holds arrays and never calls back into the caller.

namespace arcgrad {
namespace {

constexpr char kOp[] = "map_weights";

/// to += a * b, entry by entry. An entry of `a` that is zero adds nothing, also to a derivative
/// that is infinite or NaN because a weight is -inf.
void add_product(const Weights& a, const Weights& b, Weights& to) {
  dispatch(to.dtype(), [&](auto kind) {
    const auto out = to.fill<decltype(kind)>();
    for (int64_t k = 0; k < a.size(); ++k)
      if (const double factor = a[k]; factor != 0.0)
        out[k] += static_cast<decltype(kind)>(factor * b[k]);
  });
}

/// The derivative of delta * f'(weights) with respect to the graph and delta.
class MapWeightsGradRule final : public Rule {
 public:
  MapWeightsGradRule(MappedWeights mapped, Weights delta)
      : mapped_(std::move(mapped)), delta_(std::move(delta)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    if (grads[0]) {
      Weights product = Weights::zeros(delta_.size(), DType::float64);
      add_product(delta_, mapped_.second, product);
      add_product(deltas[0], product, grads[0]->sum());
    }
    if (grads[1]) add_product(deltas[0], mapped_.first, grads[1]->sum());
  }

 private:
  MappedWeights mapped_;
  Weights delta_;
};

class MapWeightsRule final : public Rule {
 public:
  MapWeightsRule(MappedWeights mapped, Graph graph)
      : mapped_(std::move(mapped)), graph_(std::move(graph)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    add_product(deltas[0], mapped_.first, grads[0]->sum());
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>&) const override {
    if (!mapped_.second)
      throw TapeError(text(kOp,
                           ": a derivative of second order needs the second derivative of the "
                           "function, but it was not given; pass "
                           "second_derivative"));
    Weights grad = Weights::zeros(graph_.num_weights(), graph_.dtype());
    add_product(deltas[0].weights(), mapped_.first, grad);
    const Graph inputs[] = {graph_, deltas[0]};
    std::unique_ptr<Rule> rule;
    if (tracks(inputs)) rule = std::make_unique<MapWeightsGradRule>(mapped_, deltas[0].weights());
    return {arcgrad::record(op, graph_.topology_ptr(), std::move(grad), inputs, std::move(rule))};
  }
  void add_sources(size_t, int32_t arc, std::vector<int32_t>& to) const override {
    to.push_back(arc);
  }

 private:
  MappedWeights mapped_;
  Graph graph_;
};

void check_size(const Graph& graph, const char* what, const Weights& weights) {
  require(!weights || weights.size() == graph.num_weights(), kOp, what,
          " must have one entry per weight, ", graph.num_weights(), " in all, but there are ",
          weights.size());
}

}  // namespace

Graph map_weights(const Graph& graph, MappedWeights mapped) {
  check_size(graph, "the new weights", mapped.values);
  check_size(graph, "the derivative", mapped.first);
  check_size(graph, "the second derivative", mapped.second);
  const bool is_tracked = tracks(graph);
  require(!is_tracked || mapped.first, kOp,
          "the function must have a derivative, because the graph has calc_grad, but it has none; "
          "pass derivative, or graph.detach()");
  Weights values = mapped.values;
  std::unique_ptr<Rule> rule;
  if (is_tracked) rule = std::make_unique<MapWeightsRule>(std::move(mapped), graph.snapshot());
  return record(kOp, graph.topology_ptr(), std::move(values), {&graph, 1}, std::move(rule));
}

}  // namespace arcgrad
