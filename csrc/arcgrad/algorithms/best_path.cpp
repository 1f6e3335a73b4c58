#include "arcgrad/algorithms/best_path.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/path_scores.h"

// The Viterbi algorithm: best scores in the tropical semiring from the accept nodes backwards, with
// a back-pointer to the first best arc at each node; then a traceback from the best start node.
// Running backwards makes ties easy: the path with the smallest arc ids follows these arcs. The
// gradient of the score is the number of times the best path uses each arc.

namespace arcgrad {
namespace {

class ViterbiScoreRule final : public Rule {
 public:
  ViterbiScoreRule(Column arcs, TopologyPtr topology, DType dtype)
      : arcs_(std::move(arcs)), topology_(std::move(topology)), dtype_(dtype) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override;
  std::vector<Graph> record(std::span<const Graph> deltas, const std::vector<bool>&) const override;

 private:
  Column arcs_;
  TopologyPtr topology_;
  DType dtype_;
};

/// The derivative of the gradient with respect to the delta: a sum along the path.
class ViterbiScoreGradRule final : public Rule {
 public:
  explicit ViterbiScoreGradRule(Column arcs) : arcs_(std::move(arcs)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    double sum = 0.0;
    for (int32_t a : arcs_) sum += deltas[0][a];
    ArcMap::identity().apply(Weights::scalar(sum), grads[0]->sum(), 1.0);
  }

 private:
  Column arcs_;
};

void ViterbiScoreRule::add(std::span<const Weights> deltas,
                           std::span<Gradient* const> grads) const {
  dispatch(grads[0]->dtype(), [&](auto kind) {
    auto grad = grads[0]->sum().fill<decltype(kind)>();
    for (int32_t a : arcs_) grad[a] += static_cast<decltype(kind)>(deltas[0][0]);
  });
}

std::vector<Graph> ViterbiScoreRule::record(std::span<const Graph> deltas,
                                            const std::vector<bool>&) const {
  Gradient grad(topology_->num_weights(), dtype_);
  const Weights delta[] = {deltas[0].weights()};
  Gradient* const grads[] = {&grad};
  add(delta, grads);
  std::unique_ptr<Rule> rule;
  if (tracks(deltas[0])) rule = std::make_unique<ViterbiScoreGradRule>(arcs_);
  return {arcgrad::record(op, topology_, grad.sum(), {&deltas[0], 1}, std::move(rule))};
}

}  // namespace

BestPath find_best_path(const char* op, const Graph& graph) {
  const Topology& t = graph.topology();
  const bool is_weighted = t.has_node_weights();
  std::vector<double> start_weights;
  std::vector<int32_t> possible;
  if (is_weighted) {
    start_weights = graph.start_weights();
    possible = possible_ends(t.start(), start_weights);
  }
  const PathScores scores(graph.topology_ptr(), graph.weights(), t.accept(),
                          {.op = op,
                           .direction = Direction::reverse,
                           .semiring = Semiring::tropical,
                           .source_weights = is_weighted ? t.first_accept_weight() : -1,
                           .targets = is_weighted ? possible : t.start()});
  BestPath path;
  int32_t start_weight = -1;
  for (size_t k = 0; k < t.start().size(); ++k) {
    const int32_t n = t.start()[k];
    const double score = scores.score(n) + (is_weighted ? start_weights[k] : 0.0);
    if (score == kNegInf || score < path.score) continue;
    // Start weights are in the order of their nodes; without them, the first arcs decide.
    if (score == path.score && (is_weighted || !scores.precedes(n, path.start))) continue;
    path.score = score;
    path.start = n;
    start_weight = t.first_start_weight() + static_cast<int32_t>(k);
  }
  if (path.start < 0) return path;
  path.arcs = scores.best_path(path.start);
  if (is_weighted) path.arcs.insert(path.arcs.begin(), start_weight);
  return path;
}

Graph viterbi_score_of_arcs(const char* op, const Graph& graph) {
  return record_path_score(op, graph, find_best_path(op, graph));
}

Graph record_path_score(const char* op, const Graph& graph, BestPath path) {
  std::unique_ptr<Rule> rule;
  if (tracks(graph))
    rule = std::make_unique<ViterbiScoreRule>(std::move(path.arcs), graph.topology_ptr(),
                                              graph.dtype());
  return record(op, scalar_topology(), Weights::scalar(path.score), {&graph, 1}, std::move(rule));
}

Graph viterbi_path_of_arcs(const char* op, const Graph& graph) {
  BestPath path = find_best_path(op, graph);
  if (path.start < 0) return record_moves(op, Arrays{}, {{graph, ArcMap::gather({})}});
  return record_path(op, graph, std::move(path.arcs));
}

Arrays chain_arrays(Column labels) {
  const auto length = static_cast<int32_t>(labels.size());
  Arrays out{length + 1, {0}, {length}, {}, {}, std::move(labels), {}};
  out.src.resize(out.ilabel.size());
  out.dst.resize(out.ilabel.size());
  std::iota(out.src.begin(), out.src.end(), 0);
  std::iota(out.dst.begin(), out.dst.end(), 1);
  return out;
}

void move_start_weight(const Topology& topology, std::span<int32_t> of_path) {
  if (topology.has_node_weights() && !of_path.empty())
    std::rotate(of_path.begin(), of_path.begin() + 1, of_path.end() - 1);
}

Arrays path_arrays(const Topology& topology, std::span<const int32_t> weights) {
  const auto arcs = weights.first(weights.size() - (topology.has_node_weights() ? 2 : 0));
  const auto labels = [&](std::span<const int32_t> from) {
    Column out(arcs.size());
    for (size_t k = 0; k < arcs.size(); ++k) out[k] = from[arcs[k]];
    return out;
  };
  Arrays out = chain_arrays(labels(topology.ilabel()));
  if (!topology.is_acceptor()) out.olabel = labels(topology.olabel());
  out.has_node_weights = topology.has_node_weights();
  return out;
}

Graph record_path(const char* op, const Graph& graph, Column arcs) {
  move_start_weight(graph.topology(), arcs);
  Arrays chain = path_arrays(graph.topology(), arcs);
  return record_moves(op, std::move(chain), {{graph, ArcMap::gather(std::move(arcs))}});
}

}  // namespace arcgrad
