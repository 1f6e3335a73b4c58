#include "arcgrad/algorithms/product.h"

#include <utility>

#include "arcgrad/algorithms/compose_topologies.h"

namespace arcgrad {
namespace {

/// Follows the arc maps once somebody wants the gradient of the arcs.
class ProductRule final : public Rule {
 public:
  explicit ProductRule(std::shared_ptr<const Product> product) : product_(std::move(product)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    product_->built().rule->add(deltas, grads);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    return product_->built().rule->record(deltas, wanted);
  }

 private:
  std::shared_ptr<const Product> product_;
};

Graph make_product(const char* op, const Graph& first, const Graph& second) {
  auto product = std::make_shared<const Product>(op, first, second);
  auto state = std::make_shared<GraphState>();
  state->product = product;
  Graph out(std::move(state));
  const Graph factors[] = {product->first(), product->second()};
  if (tracks(factors))
    record_entry(op, {&out, 1}, factors, 0, std::make_unique<ProductRule>(std::move(product)));
  return out;
}

/// Whether the product may be left out of the history of what is made from it.
bool may_bypass(const Graph& graph) {
  const auto var = graph.var();
  return !var || !var->retain_grad;
}

/// The graph and the emissions of a product, without gradients if it has none itself.
std::pair<Graph, Graph> factors_of(const Graph& graph) {
  const Product& product = *graph.product();
  if (graph.calc_grad()) return {product.graph(), product.emissions()};
  return {product.graph().detach(), product.emissions().detach()};
}

}  // namespace

Product::Product(const char* op, const Graph& first, const Graph& second)
    : op_(op),
      first_(first.snapshot()),
      second_(second.snapshot()),
      is_emissions_first_(!is_emissions(second)) {}

const Product::Built& Product::built() const {
  once_.call([this] {
    Composed composed = compose_topologies(op_, first_.topology(), second_.topology());
    built_.topology = std::make_shared<Topology>(std::move(composed.arrays));
    const Moved inputs[] = {{first_, std::move(composed.first)},
                            {second_, std::move(composed.second)}};
    built_.weights = move_weights(built_.topology->num_arcs(), dtype(), inputs);
    auto rule = make_moves_rule(inputs);
    rule->op = op_;
    built_.rule = std::move(rule);
  });
  return built_;
}

Graph defer_product(const char* op, const Graph& first, const Graph& second) {
  const bool is_first = is_emissions(first), is_second = is_emissions(second);
  if (is_first != is_second && !first.product() && !second.product())
    return make_product(op, first, second);

  // With g matched on both sides by labels that survive, h can be composed with g first:
  //   (g e) h = (g h) e  or  e (g h),   (e g) h = e (g h),   and the same from the left.
  if (first.product() && !second.product() && !is_second && may_bypass(first)) {
    const Product& product = *first.product();
    const bool is_tracked = tracks(first);
    const auto [g, e] = factors_of(first);
    if (product.side() == Side::input) {
      if (is_tracked) product.bypass();
      return make_product(op, e, compose_as(op, g, second));
    }
    if (second.topology().is_acceptor()) {
      if (is_tracked) product.bypass();
      return make_product(op, compose_as(op, g, second), e);
    }
    if (g.topology().is_acceptor()) {
      if (is_tracked) product.bypass();
      return make_product(op, e, compose_as(op, g, second));
    }
  }
  if (second.product() && !first.product() && !is_first && may_bypass(second)) {
    const Product& product = *second.product();
    const bool is_tracked = tracks(second);
    const auto [g, e] = factors_of(second);
    if (product.side() == Side::output) {
      if (is_tracked) product.bypass();
      return make_product(op, compose_as(op, first, g), e);
    }
    if (first.topology().is_acceptor()) {
      if (is_tracked) product.bypass();
      return make_product(op, e, compose_as(op, first, g));
    }
    if (g.topology().is_acceptor()) {
      if (is_tracked) product.bypass();
      return make_product(op, compose_as(op, first, g), e);
    }
  }
  return nullptr;
}

}  // namespace arcgrad
