#include "arcgrad/algorithms/product.h"

#include <algorithm>
#include <utility>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/runtime/error.h"

// The trellis computes the scores of a product from its two factors and records them as functions
// of the factors. Only an op that reads the arcs of a product builds them, by compose_topologies(),
// and only then is ProductRule used.

namespace arcgrad {
namespace {

/// The rule of the arcs of a product with failure arcs, whose factor that has them is the input of
/// several moves.
class FailureRule final : public Rule {
 public:
  /// `factors` are the factors of the inputs of `moves`: 0 and 1, then those of the failure arcs.
  FailureRule(std::unique_ptr<Rule> moves, std::vector<size_t> factors)
      : moves_(std::move(moves)), factors_(std::move(factors)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    std::vector<Gradient*> all;
    for (size_t f : factors_) all.push_back(grads[f]);
    moves_->add(deltas, all);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    std::vector<bool> all;
    for (size_t f : factors_) all.push_back(wanted[f]);
    const std::vector<Graph> parts = moves_->record(deltas, all);
    std::vector<Graph> out(parts.begin(), parts.begin() + 2);
    for (size_t k = 2; k < parts.size(); ++k)
      if (parts[k]) out[factors_[k]] = record_sum(op, out[factors_[k]], parts[k], 1.0);
    return out;
  }
  void add_sources(size_t input, int32_t arc, std::vector<int32_t>& to) const override {
    for (size_t k = 0; k < factors_.size(); ++k)
      if (factors_[k] == input) moves_->add_sources(k, arc, to);
  }

 private:
  std::unique_ptr<Rule> moves_;
  std::vector<size_t> factors_;
};

/// The rule of a product whose arcs are used. Builds the arcs when their gradient is needed.
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
  void add_sources(size_t input, int32_t arc, std::vector<int32_t>& to) const override {
    product_->rule().add_sources(input, arc, to);
  }

 private:
  std::shared_ptr<const Product> product_;
};

Graph make_product(const char* op, const Graph& first, const Graph& second,
                   const Compose& compose) {
  const bool is_first = !is_emissions(first);
  const Graph& graph = is_first ? first : second;
  const Side side = is_first ? Side::output : Side::input;
  require_matched(op, graph.topology(), side);
  find_failures(op, graph.topology(), side);  // throws if they are malformed
  auto product = std::make_shared<const Product>(op, first, second, compose);
  auto state = std::make_shared<GraphState>();
  state->deferred = product;
  Graph out(std::move(state));
  const Graph factors[] = {product->first(), product->second()};
  if (tracks(factors))
    record_entry(op, {&out, 1}, factors, 0, std::make_unique<ProductRule>(std::move(product)));
  return out;
}

/// Whether a result may be computed from the factors of the product, without the product on the
/// tape.
bool may_bypass(const Graph& graph) {
  const auto var = graph.var();
  return !var || !var->retain_grad;
}

/// The graph and the emissions of a product, detached if the product is.
std::pair<Graph, Graph> factors_of(const Graph& graph) {
  const Product& product = *graph.product();
  if (graph.calc_grad()) return {product.graph(), product.emissions()};
  return {product.graph().detach(), product.emissions().detach()};
}

}  // namespace

Product::Product(const char* op, const Graph& first, const Graph& second, Compose compose)
    : op_(op),
      first_(first.snapshot()),
      second_(second.snapshot()),
      is_emissions_first_(!is_emissions(second)),
      symbols_(compose_symbols(op, first, second)),
      compose_(std::move(compose)) {}

const Deferred::Built& Product::built() const {
  once_.call([this] {
    Composed composed = compose_(op_, first_.topology(), second_.topology());
    composed.arrays.symbols = symbols_;
    const std::vector<Moved> inputs = composed.inputs(first_, second_);
    Built built{std::make_shared<Topology>(std::move(composed.arrays)), {}};
    built.weights = move_weights(built.topology->num_weights(), dtype(), inputs);
    auto rule = make_moves_rule(inputs);
    rule->op = op_;
    if (inputs.size() > 2) {
      std::vector<size_t> factors(inputs.size(), composed.failing == Side::output ? 0 : 1);
      factors[0] = 0;
      factors[1] = 1;
      rule = std::make_unique<FailureRule>(std::move(rule), std::move(factors));
      rule->op = op_;
    }
    if (is_built()) return;  // by a signal handler, meanwhile
    built_ = std::move(built);
    rule_ = std::move(rule);
  });
  return built_;
}

const Rule& Product::rule() const {
  built();
  return *rule_;
}

const SymbolTables& symbols_of(const Graph& graph) {
  return graph.product() ? graph.product()->symbols() : graph.topology().symbols();
}

SymbolTables compose_symbols(const char* op, const Graph& first, const Graph& second) {
  const SymbolTables &x = symbols_of(first), &y = symbols_of(second);
  if (x.empty() && y.empty()) return {};
  const SymbolTablePtr matched = joined(op, x.output, y.input);
  const auto is_acceptor = [](const Graph& graph) {
    return (graph.product() ? graph.product()->graph() : graph).topology().is_acceptor();
  };
  return {x.input || !is_acceptor(first) ? x.input : matched,
          y.output || !is_acceptor(second) ? y.output : matched};
}

const Product* Graph::product() const {
  return static_cast<const Product*>(state_->deferred.get());
}

Graph compose_eagerly(const char* op, const Graph& first, const Graph& second,
                      const Compose& compose) {
  SymbolTables symbols = compose_symbols(op, first, second);
  Composed composed = compose(op, first.topology(), second.topology());
  composed.arrays.symbols = std::move(symbols);
  std::vector<Moved> inputs = composed.inputs(first, second);
  return record_moves(op, std::make_shared<Topology>(std::move(composed.arrays)),
                      std::move(inputs));
}

namespace {

bool has_special_labels(const Graph& graph) {
  const Topology& topology = graph.topology();
  return topology.has_special_labels(Side::input) || topology.has_special_labels(Side::output);
}

/// Composes a product of a graph g and emissions e with another graph h, by composing g and h and
/// deferring the composition with e:
///   (g e) h = (g h) e  or  e (g h),   (e g) h = e (g h),   and the same from the left.
/// Returns null if the labels forbid it: `h` must match labels of g that e does not change, and
/// failure arcs of g must match the labels of e and of h in the same way.
Graph extend_product(const char* op, const Graph& deferred, const Graph& other,
                     bool is_other_second, const Compose& compose) {
  if (!may_bypass(deferred)) return nullptr;
  const Product& product = *deferred.product();
  const auto [g, e] = factors_of(deferred);
  const bool is_other_acceptor = other.topology().is_acceptor();
  if (has_special_labels(g) && (has_special_labels(other) || !g.topology().is_acceptor()))
    return nullptr;
  // Whether the side of g that is matched with the other graph is not matched with the emissions.
  const bool is_outer_free = product.side() == (is_other_second ? Side::input : Side::output);
  if (!is_outer_free && !is_other_acceptor && !g.topology().is_acceptor()) return nullptr;
  compose_symbols(op, is_other_second ? deferred : other, is_other_second ? other : deferred);
  if (tracks(deferred)) product.bypass();
  const Graph graph = is_other_second ? compose_eagerly(op, g, other, compose)
                                      : compose_eagerly(op, other, g, compose);
  // The emissions stay on their side, unless the other graph comes between and is an acceptor.
  const bool is_emissions_second =
      (product.side() == Side::output) == (is_outer_free || is_other_acceptor);
  return is_emissions_second ? make_product(op, graph, e, compose)
                             : make_product(op, e, graph, compose);
}

void require_acceptor(const char* op, const char* which, const Graph& graph) {
  // A product of acceptors is an acceptor and need not be built.
  if (graph.product() && graph.product()->graph().topology().is_acceptor()) return;
  const Topology& topology = graph.topology();
  if (topology.is_acceptor()) return;
  const auto ilabel = topology.ilabel(), olabel = topology.olabel();
  const auto a = std::ranges::mismatch(ilabel, olabel).in1 - ilabel.begin();
  fail(op,
       "both graphs must be acceptors (input label equal to output label on every arc), but arc ",
       a, " of the ", which, " graph has labels ", ilabel[a], ":", olabel[a],
       "; use compose for transducers");
}

}  // namespace

Compose compose_within(std::optional<int64_t> max_arcs) {
  return [max_arcs](const char* op, const Topology& first, const Topology& second) {
    return compose_topologies(op, first, second, max_arcs);
  };
}

bool is_deferrable(const Graph& first, const Graph& second) {
  return !first.product() && !second.product() && is_emissions(first) != is_emissions(second);
}

Graph compose_as(const char* op, const Graph& first, const Graph& second, const Compose& compose) {
  if (is_deferrable(first, second)) return make_product(op, first, second, compose);
  Graph product = nullptr;
  if (first.product() && !second.product() && !is_emissions(second))
    product = extend_product(op, first, second, true, compose);
  else if (second.product() && !first.product() && !is_emissions(first))
    product = extend_product(op, second, first, false, compose);
  return product ? product : compose_eagerly(op, first, second, compose);
}

Graph intersect_as(const char* op, const Graph& first, const Graph& second,
                   const Compose& compose) {
  require_acceptor(op, "first", first);
  require_acceptor(op, "second", second);
  return compose_as(op, first, second, compose);
}

}  // namespace arcgrad
