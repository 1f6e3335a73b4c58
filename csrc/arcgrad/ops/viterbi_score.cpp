#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/autograd/tape.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/of_arcs.h"
#include "arcgrad/trellis/viterbi.h"

namespace arcgrad {
namespace {

/// The score is the sum of the arcs of the best path, so each of them passes the delta on.
class ViterbiScoreRule final : public Rule {
 public:
  ViterbiScoreRule(Column arcs, TopologyPtr topology, DType dtype)
      : arcs_(std::move(arcs)), topology_(std::move(topology)), dtype_(dtype) {}

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override;
  std::vector<Graph> record(std::span<const Graph> deltas, const std::vector<bool>&) const override;

 private:
  Column arcs_;
  TopologyPtr topology_;
  DType dtype_;
};

/// The transpose of the above: a gradient over arcs becomes its sum along the path.
class SpreadRule final : public Rule {
 public:
  explicit SpreadRule(Column arcs) : arcs_(std::move(arcs)) {}

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    double sum = 0.0;
    for (int32_t a : arcs_) sum += deltas[0][a];
    ArcMap::identity().apply(Weights::scalar(sum), *grads[0], 1.0);
  }

 private:
  Column arcs_;
};

void ViterbiScoreRule::add(std::span<const Weights> deltas, std::span<Weights* const> grads) const {
  dispatch(grads[0]->dtype(), [&](auto kind) {
    auto grad = grads[0]->fill<decltype(kind)>();
    for (int32_t a : arcs_) grad[a] += static_cast<decltype(kind)>(deltas[0][0]);
  });
}

std::vector<Graph> ViterbiScoreRule::record(std::span<const Graph> deltas,
                                            const std::vector<bool>&) const {
  Weights grad = Weights::zeros(topology_->num_arcs(), dtype_);
  const Weights delta[] = {deltas[0].weights()};
  Weights* const grads[] = {&grad};
  add(delta, grads);
  std::unique_ptr<Rule> rule;
  if (tracks(deltas[0])) rule = std::make_unique<SpreadRule>(arcs_);
  return {arcgrad::record(op, topology_, std::move(grad), {&deltas[0], 1}, std::move(rule))};
}

}  // namespace

Graph viterbi_score_of_arcs(const char* op, const Graph& graph) {
  BestPath path = find_best_path(op, graph);
  std::unique_ptr<Rule> rule;
  if (tracks(graph))
    rule = std::make_unique<ViterbiScoreRule>(std::move(path.arcs), graph.topology_ptr(),
                                              graph.dtype());
  return record(op, scalar_topology(), Weights::scalar(path.score), {&graph, 1}, std::move(rule));
}

Graph viterbi_score(const Graph& graph) {
  if (!graph.product()) return viterbi_score_of_arcs("viterbi_score", graph);
  return trellis::best_scores("viterbi_score", {graph})[0];
}

std::vector<Graph> viterbi_score(const std::vector<Graph>& graphs) {
  return trellis::best_scores("viterbi_score", graphs);
}

}  // namespace arcgrad
