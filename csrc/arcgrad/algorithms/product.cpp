#include "arcgrad/algorithms/product.h"

#include <utility>

#include "arcgrad/algorithms/compose_topologies.h"

namespace arcgrad {
namespace {

/// Builds the arc maps when the gradient of the arcs is needed.
class ProductRule final : public Rule {
 public:
  explicit ProductRule(std::shared_ptr<const Product> product) : product_(std::move(product)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    product_->rule().add(deltas, grads);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    return product_->rule().record(deltas, wanted);
  }

 private:
  std::shared_ptr<const Product> product_;
};

Graph make_product(const char* op, const Graph& first, const Graph& second) {
  auto product = std::make_shared<const Product>(op, first, second);
  auto state = std::make_shared<GraphState>();
  state->deferred = product;
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

const Deferred::Built& Product::built() const {
  once_.call([this] {
    Composed composed = compose_topologies(op_, first_.topology(), second_.topology());
    built_.topology = std::make_shared<Topology>(std::move(composed.arrays));
    const Moved inputs[] = {{first_, std::move(composed.first)},
                            {second_, std::move(composed.second)}};
    built_.weights = move_weights(built_.topology->num_arcs(), dtype(), inputs);
    auto rule = make_moves_rule(inputs);
    rule->op = op_;
    rule_ = std::move(rule);
  });
  return built_;
}

const Rule& Product::rule() const {
  built();
  return *rule_;
}

const Product* Graph::product() const {
  return static_cast<const Product*>(state_->deferred.get());
}

namespace {

/// The composition of a product with a further graph as a product again, so that the order of
/// writing does not matter; no graph if labels do not allow it. With g matched on both sides by
/// labels that survive, h can be composed with g first:
///   (g e) h = (g h) e  or  e (g h),   (e g) h = e (g h),   and the same from the left.
Graph extend_product(const char* op, const Graph& deferred, const Graph& other,
                     bool is_other_second) {
  if (!may_bypass(deferred)) return nullptr;
  const Product& product = *deferred.product();
  const auto [g, e] = factors_of(deferred);
  const bool is_other_acceptor = other.topology().is_acceptor();
  // The side of g that meets the other graph.
  const bool is_outer_free = product.side() == (is_other_second ? Side::input : Side::output);
  if (!is_outer_free && !is_other_acceptor && !g.topology().is_acceptor()) return nullptr;
  if (tracks(deferred)) product.bypass();
  const Graph graph = is_other_second ? compose_as(op, g, other) : compose_as(op, other, g);
  // The emissions stay on their side, unless the other graph comes between and is an acceptor.
  const bool is_emissions_second =
      (product.side() == Side::output) == (is_outer_free || is_other_acceptor);
  return is_emissions_second ? make_product(op, graph, e) : make_product(op, e, graph);
}

/// The composition as a product, if it can be deferred; else no graph.
Graph defer_product(const char* op, const Graph& first, const Graph& second) {
  const bool is_first = is_emissions(first), is_second = is_emissions(second);
  if (is_first != is_second && !first.product() && !second.product())
    return make_product(op, first, second);
  if (first.product() && !second.product() && !is_second) {
    if (Graph out = extend_product(op, first, second, true)) return out;
  }
  if (second.product() && !first.product() && !is_first)
    return extend_product(op, second, first, false);
  return nullptr;
}

}  // namespace

Graph compose_as(const char* op, const Graph& first, const Graph& second) {
  if (Graph product = defer_product(op, first, second)) return product;
  Composed composed = compose_topologies(op, first.topology(), second.topology());
  return record_moves(op, std::move(composed.arrays),
                      {{first, std::move(composed.first)}, {second, std::move(composed.second)}});
}

}  // namespace arcgrad
