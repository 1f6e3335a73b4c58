#include "arcgrad/gtn/scores.h"

#include <cmath>
#include <limits>
#include <utility>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/gtn/best_path.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad::gtn {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Whether all weights are finite or -inf.
bool is_scorable(const Graph& graph) {
  const Weights weights = graph.weights();
  return dispatch(weights.dtype(), [&](auto kind) {
    int bad = 0;  // not a bool, so that the loop is vectorized
    for (const auto w : weights.view<decltype(kind)>())
      bad |= w < std::numeric_limits<decltype(kind)>::infinity() ? 0 : 1;
    return bad == 0;
  });
}

/// The graph with `value` in place of the weights for which `is_replaced`.
template <class IsReplaced>
Graph replace(const Graph& graph, double value, const IsReplaced& is_replaced) {
  const Weights old = graph.weights();
  Weights weights = Weights::uninitialized(old.size(), old.dtype());
  dispatch(old.dtype(), [&](auto kind) {
    using T = decltype(kind);
    std::ranges::transform(old.view<T>(), weights.fill<T>().begin(),
                           [&](T w) { return is_replaced(w) ? static_cast<T>(value) : w; });
  });
  const Moved input[] = {{graph, ArcMap::identity()}};
  return record("replace", graph.topology_ptr(), std::move(weights), {&graph, 1},
                make_moves_rule(input));
}

/// The score +inf, whose gradient is NaN for every arc.
Graph infinite_score(const Graph& graph) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<int32_t> to_score(static_cast<size_t>(graph.num_arcs()), 0);
  const Moved input[] = {{graph, ArcMap::gather(to_score).transpose(), nan}};
  return record("forward_score", scalar_topology(), Weights::scalar(kInf), {&graph, 1},
                make_moves_rule(input));
}

/// Throws if a node that does not start and that no arc enters leads to an accept node.
void require_rooted(const char* op, const Topology& t) {
  if (t.dense()) return;
  std::vector<uint8_t> is_entered(static_cast<size_t>(t.num_nodes()));
  for (const int32_t n : t.dst()) is_entered[n] = 1;
  for (const int32_t n : t.start()) is_entered[n] = 1;
  std::vector<int32_t> stack;
  for (int32_t n = 0; n < t.num_nodes(); ++n)
    if (!is_entered[n]) stack.push_back(n);
  if (stack.empty()) return;
  const Adjacency& out = t.out();
  std::vector<int32_t> root(static_cast<size_t>(t.num_nodes()), -1);
  for (const int32_t n : stack) root[n] = n;
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k) {
      const int32_t d = out.node[k];
      require(!t.is_accept(d), op,
              "a node that leads to an accept node must start or have an incoming arc, but node ",
              root[n], " has neither; use arcgrad.", op, ", which ignores it");
      if (root[d] >= 0) continue;
      root[d] = root[n];
      stack.push_back(d);
    }
  }
}

/// The score of a product whose factors have NaN in places that may belong to no path.
Graph score_without_nan(const char* op, const Graph& graph) {
  const Product& product = *graph.product();
  const auto factor = [&](const Graph& f) {
    return without_nan(graph.calc_grad() ? f : f.detach());
  };
  const Graph first = factor(product.first()), second = factor(product.second());
  const auto var = graph.var();
  if ((var && var->retain_grad) || !is_scorable(first) || !is_scorable(second)) return nullptr;
  if (tracks(graph)) product.bypass();
  return arcgrad::forward_score(compose_as(op, first, second));
}

}  // namespace

Graph without_nan(const Graph& graph) {
  if (is_scorable(graph)) return graph;
  return replace(graph, kNegInf, [](auto w) { return std::isnan(w); });
}

Graph forward_score(const Graph& graph) {
  const char* const op = "forward_score";
  Graph arcs = graph;
  if (const Product* product = graph.product()) {
    if (is_scorable(product->graph()) && is_scorable(product->emissions()))
      return arcgrad::forward_score(graph);
    if (Graph score = score_without_nan(op, graph)) return score;
    arcs = record_moves(op, graph.topology_ptr(), {{graph, ArcMap::identity()}});
  }
  require_rooted(op, arcs.topology());
  if (is_scorable(arcs)) return arcgrad::forward_score(arcs);
  arcs = without_nan(arcs);
  if (is_scorable(arcs)) return arcgrad::forward_score(arcs);
  if (find_best_path(op, arcs, {}, Ties::score).score == kInf) return infinite_score(arcs);
  // No path uses the arcs of weight +inf.
  return arcgrad::forward_score(replace(arcs, kNegInf, [](auto w) { return w == kInf; }));
}

std::vector<Graph> forward_score(const std::vector<Graph>& graphs) {
  const char* const op = "forward_score";
  bool is_plain = true;
  int64_t work = 0;
  for_batch(
      op, graphs.size(),
      [&](size_t i) {
        const Graph& graph = graphs[i];
        work += work_of(graph);
        if (const Product* product = graph.product()) {
          is_plain &= is_scorable(product->graph()) && is_scorable(product->emissions());
        } else {
          require_rooted(op, graph.topology());
          is_plain &= is_scorable(graph);
        }
      },
      0);
  if (is_plain) return arcgrad::forward_score(graphs);
  return map_batch(
      op, graphs.size(), [&](size_t i) { return gtn::forward_score(graphs[i]); }, work);
}

namespace {

/// Whether the best path of a product can be found without building it.
bool has_frames_only(const Graph& graph) {
  const auto var = graph.var();
  if (!is_large_product(graph) || (var && var->retain_grad)) return false;
  const Product& product = *graph.product();
  const auto label = product.graph().topology().label(product.side());
  return std::ranges::find(label, kEpsilon) == label.end();
}

}  // namespace

Graph viterbi_score(const Ordered& ordered) {
  const Graph& graph = ordered.graph;
  if (has_frames_only(graph)) {
    const Graph chain = best_path_of_product("viterbi_score", graph, Ties::score);
    BestPath path;
    if (chain.num_nodes() > 0) {
      path.score = 0.0;
      for (int32_t a = 0; a < chain.num_arcs(); ++a) {
        path.score += chain.raw_weights()[a];
        path.arcs.push_back(a);
      }
    }
    return record_path_score("viterbi_score", chain, std::move(path));
  }
  require_rooted("viterbi_score", graph.topology());
  return record_path_score("viterbi_score", graph,
                           find_best_path("viterbi_score", graph, ordered.order, Ties::score));
}

Graph viterbi_path(const Ordered& ordered) {
  const Graph& graph = ordered.graph;
  if (has_frames_only(graph)) return best_path_of_product("viterbi_path", graph, Ties::path);
  require_rooted("viterbi_path", graph.topology());
  BestPath path = find_best_path("viterbi_path", graph, ordered.order, Ties::path);
  if (path.start < 0) return record_moves("viterbi_path", Arrays{}, {{graph, ArcMap::gather({})}});
  return record_path("viterbi_path", graph, std::move(path.arcs));
}

}  // namespace arcgrad::gtn
