// The losses of a batch as one tape entry: paths and normalizer share one pass over the emissions.

#include "arcgrad/trellis/sequence_loss.h"

#include <algorithm>

#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/trellis/batch.h"

namespace arcgrad::trellis {
namespace {

/// Differentiates the losses. Inputs: the graphs, then the emissions.
class LossRule final : public Rule {
 public:
  explicit LossRule(std::shared_ptr<const Batch> batch) : batch_(std::move(batch)) {}

  bool is_parallel() const override { return true; }
  int32_t least_level() const override { return batch_->frames() ? kFillsRows : 0; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const size_t num_graphs = batch_->plan().graphs.size();
    std::vector<double> path_deltas, frame_deltas;
    for (size_t i = 0; i < deltas.size(); ++i) {
      path_deltas.push_back(deltas[i] && is_feasible(i) ? -deltas[i][0] : 0.0);
      if (batch_->frames()) frame_deltas.push_back(-path_deltas.back());
    }
    const Batch::Flow flow{batch_.get(), std::move(path_deltas), grads.first(num_graphs),
                           grads.subspan(num_graphs), std::move(frame_deltas)};
    Batch::add_gradients({&flow, 1});
  }

  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    std::vector<Graph> path_deltas, frame_deltas;
    for (size_t i = 0; i < deltas.size(); ++i) {
      frame_deltas.push_back(is_feasible(i) ? deltas[i] : nullptr);
      path_deltas.push_back(frame_deltas[i] ? negated(deltas[i]) : nullptr);
    }
    std::vector<Graph> grads = record_gradients(op, batch_, path_deltas, wanted);
    if (!batch_->frames()) return grads;
    const size_t num_graphs = batch_->plan().graphs.size();
    const std::vector<bool> emissions(wanted.begin() + static_cast<std::ptrdiff_t>(num_graphs),
                                      wanted.end());
    const std::vector<Graph> of_frames =
        record_gradients(op, batch_->frames(), frame_deltas, emissions);
    for (size_t e = 0; e < of_frames.size(); ++e) {
      Graph& grad = grads[num_graphs + e];
      if (of_frames[e]) grad = grad ? record_sum(op, grad, of_frames[e], 1.0) : of_frames[e];
    }
    return grads;
  }

 private:
  /// Whether the graph accepts a path of the example. If not, the gradient of its loss is zero.
  bool is_feasible(size_t example) const { return batch_->score(example) > kNegInf; }
  Graph negated(const Graph& delta) const {
    return record_moves(op, delta.topology_ptr(), {{delta, ArcMap::identity(), -1.0}});
  }

  std::shared_ptr<const Batch> batch_;
};

bool is_explicit_acceptor(const Graph& graph) {
  return !graph.product() && !is_emissions(graph) && graph.topology().is_acceptor();
}

}  // namespace

std::optional<std::vector<Graph>> sequence_losses(const char* op, const std::vector<Graph>& graphs,
                                                  const std::vector<Graph>& emissions,
                                                  bool normalize) {
  const size_t count = emissions.size();
  if ((graphs.size() != count && graphs.size() != 1) ||
      !std::ranges::all_of(graphs, is_explicit_acceptor) ||
      !std::ranges::all_of(emissions, is_emissions))
    return {};
  Plan plan(op, graphs, emissions);
  // Two threads would sum the frames of emissions that two examples share.
  if (normalize && plan.emissions.size() < count) return {};

  const bool keep = tracks(plan.graphs) || tracks(plan.emissions);
  const auto frames = normalize ? std::make_shared<Frames>(op, plan.emissions) : nullptr;
  const auto batch = std::make_shared<const Batch>(op, std::move(plan), keep, frames);
  std::vector<Graph> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (!batch->is_fused(i)) return {};
    // Without a path the normalizer may be -inf too, and the difference would be NaN.
    const double score = batch->score(i);
    const double normalizer = normalize && score > kNegInf ? frames->score(i) : 0.0;
    out.emplace_back(scalar_topology(), Weights::scalar(normalizer - score));
  }
  if (!keep) return out;
  std::vector<Graph> inputs(batch->plan().graphs);
  const std::vector<Graph>& matched = batch->plan().emissions;
  inputs.insert(inputs.end(), matched.begin(), matched.end());
  record_entry(op, out, inputs, 0, std::make_unique<LossRule>(batch));
  return out;
}

}  // namespace arcgrad::trellis
