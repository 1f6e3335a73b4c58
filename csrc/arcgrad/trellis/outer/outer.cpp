// Outer scores as one tape entry.

#include "arcgrad/trellis/outer/outer.h"

#include "arcgrad/runtime/error.h"
#include "arcgrad/trellis/outer/outer_batch.h"
#include "arcgrad/trellis/recorded_gradients.h"

namespace arcgrad::trellis {
namespace {

/// The graphs, then the emissions.
std::vector<Graph> factors_of(const OuterBatch& batch) {
  std::vector<Graph> out(batch.graphs);
  out.insert(out.end(), batch.emissions.begin(), batch.emissions.end());
  return out;
}

/// Differentiates the gradients that OuterRule records. Inputs: the graphs, the emissions, the
/// delta.
class OuterGradientsRule final : public Rule {
 public:
  OuterGradientsRule(std::shared_ptr<const OuterBatch> batch, Weights delta,
                     std::vector<size_t> outputs)
      : batch_(std::move(batch)), delta_(std::move(delta)), outputs_(std::move(outputs)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }
  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    std::vector<Weights> tangents(grads.size() - 1);
    for (size_t k = 0; k < outputs_.size(); ++k) tangents[outputs_[k]] = deltas[k];
    batch_->add_hvps(delta_, tangents, grads.first(grads.size() - 1), grads.back());
  }

 private:
  std::shared_ptr<const OuterBatch> batch_;
  Weights delta_;
  std::vector<size_t> outputs_;  // the factor of each output
};

/// Differentiates the scores. Inputs: the graphs, then the emissions.
class OuterRule final : public Rule {
 public:
  explicit OuterRule(std::shared_ptr<const OuterBatch> batch) : batch_(std::move(batch)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }
  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    batch_->add_gradients(deltas[0], grads);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    const std::vector<Graph> factors = factors_of(*batch_);
    RecordedGradients grads(factors, wanted);
    const Weights delta = deltas[0].weights().cast(DType::float64);
    batch_->add_gradients(delta, grads.destinations());
    std::vector<Graph> inputs(factors);
    inputs.push_back(deltas[0]);
    return grads.record(op, inputs, [&](std::vector<size_t> outputs) {
      return std::make_unique<OuterGradientsRule>(batch_, delta, std::move(outputs));
    });
  }

 private:
  std::shared_ptr<const OuterBatch> batch_;
};

}  // namespace

Graph outer_scores(const char* op, const std::vector<Graph>& graphs,
                   const std::vector<Graph>& emissions, WindowShape window, Semiring semiring) {
  require(window.size >= 0, op, "the window must be 1 frame or more, but it is ", window.size);
  require(window.stride >= 1, op, "the stride must be 1 frame or more, but it is ", window.stride);
  require(window.dilation >= 1, op, "the dilation must be 1 frame or more, but it is ",
          window.dilation);
  require(window.size > 0 || window.dilation == 1, op,
          "a dilation needs a window, but the window is the whole example");
  const auto batch = std::make_shared<const OuterBatch>(op, graphs, emissions, window, semiring);
  require_size(op, "scores", int64_t{batch->num_rows()} * static_cast<int64_t>(graphs.size()));
  Graph out(std::make_shared<Topology>(batch->num_rows(), static_cast<int32_t>(graphs.size())),
            batch->scores());
  const std::vector<Graph> inputs = factors_of(*batch);
  if (tracks(inputs)) record_entry(op, {&out, 1}, inputs, 0, std::make_unique<OuterRule>(batch));
  return out;
}

}  // namespace arcgrad::trellis
