// The forward scores of a list as one tape entry, and the posteriors of the factors of a product.

#include "arcgrad/trellis/forward_score.h"

#include <algorithm>

#include "arcgrad/algorithms/log_partition.h"
#include "arcgrad/runtime/key_index.h"
#include "arcgrad/trellis/batch.h"

namespace arcgrad::trellis {
namespace {

/// Differentiates the scores of a batch. Inputs: the products (optional), then the graphs, then the
/// emissions.
class ForwardRule final : public Rule {
 public:
  explicit ForwardRule(std::shared_ptr<const Batch> batch) : batch_(std::move(batch)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const Call call{this, deltas, grads};
    add_together({&call, 1});
  }

  /// Runs the chunks of several calls in parallel, so that scores from a loop are differentiated
  /// as fast as scores of a list. Calls that add to the same gradient of emissions run one after
  /// the other, because each would need its own buffer.
  void add_together(std::span<const Call> calls) const override {
    constexpr int64_t kMostArcs = 1 << 22;
    std::vector<Batch::Flow> flows;
    KeyIndex<const void*> used;
    int64_t arcs = 0;
    const auto finish = [&] {
      if (!flows.empty()) Batch::add_gradients(flows);
      flows.clear();
      used.clear();
      arcs = 0;
    };
    for (const Call& call : calls) {
      Batch::Flow flow = static_cast<const ForwardRule&>(*call.rule).flow(call);
      const auto is_used = [&](const Gradient* grad) { return grad && used.contains(grad); };
      if (arcs > kMostArcs || std::ranges::any_of(flow.emission_grads, is_used)) finish();
      for (const Gradient* grad : flow.emission_grads) used.add(grad);
      const Plan& plan = flow.batch->plan();
      for (size_t g = 0; g < plan.graphs.size(); ++g)
        if (flow.graph_grads[g]) arcs += plan.graphs[g].num_weights();
      flows.push_back(std::move(flow));
    }
    finish();
  }

  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    const Plan& plan = batch_->plan();
    const size_t count = plan.examples.size();
    std::vector<Graph> grads(wanted.size(), nullptr), flowing(deltas.begin(), deltas.end());
    for (size_t i = 0; i < count; ++i) {
      if (!wanted[i] || !flowing[i]) continue;
      const Graph& product = plan.examples[i].product;
      grads[i] =
          record_posteriors(op, product, std::make_shared<const LogPartition>(op, product, true),
                            flowing[i], product.dtype());
      flowing[i] = nullptr;
    }
    const std::vector<bool> factors(wanted.begin() + static_cast<std::ptrdiff_t>(count),
                                    wanted.end());
    std::ranges::move(record_gradients(op, batch_, flowing, factors),
                      grads.begin() + static_cast<std::ptrdiff_t>(count));
    return grads;
  }

 private:
  /// The deltas that flow to the factors. If the gradient of a product itself is wanted, the
  /// product receives it here, and passes it on to its factors later.
  Batch::Flow flow(const Call& call) const {
    const Plan& plan = batch_->plan();
    const size_t count = plan.examples.size();
    std::vector<double> scale(count);
    for (size_t i = 0; i < count; ++i) {
      scale[i] = call.deltas[i] ? call.deltas[i][0] : 0.0;
      if (!call.grads[i]) continue;
      if (scale[i] != 0.0) {
        const LogPartition partition(op, plan.examples[i].product, true);
        partition.add_posteriors(scale[i], *call.grads[i]);
      }
      scale[i] = 0.0;
    }
    return {batch_.get(), std::move(scale), call.grads.subspan(count, plan.graphs.size()),
            call.grads.subspan(count + plan.graphs.size())};
  }

  std::shared_ptr<const Batch> batch_;
};

}  // namespace

std::vector<Graph> forward_scores(const char* op, const std::vector<Graph>& graphs) {
  Plan plan(op, graphs);
  std::vector<Graph> out(graphs.size(), nullptr);
  std::vector<size_t> with_arcs = plan.with_arcs;
  const std::vector<size_t> linear = plan.linear;
  if (!plan.examples.empty()) {
    const bool keep = std::ranges::any_of(
        plan.examples, [](const Plan::Example& example) { return tracks(example.product); });
    auto batch = std::make_shared<const Batch>(op, std::move(plan), keep);
    const std::vector<Plan::Example>& examples = batch->plan().examples;
    std::vector<Graph> outputs;
    for (size_t k = 0; k < examples.size(); ++k) {
      outputs.emplace_back(scalar_topology(), Weights::scalar(batch->score(k)));
      if (batch->is_fused(k))
        out[examples[k].position] = outputs.back();
      else  // scored by its arcs below, so no gradient flows through this output
        with_arcs.push_back(examples[k].position);
    }
    if (keep)
      record_entry(op, outputs, batch->plan().tape_inputs(), examples.size(),
                   std::make_unique<ForwardRule>(batch));
  }
  if (!linear.empty()) score_frames(op, graphs, linear, out);
  for_positions(op, graphs.size(), with_arcs,
                [&](size_t i) { out[i] = forward_score_of_arcs(op, graphs[i]); });
  return out;
}

Graph factor_posteriors(const char* op, const Graph& graph, const Graph& factor) {
  const bool is_graph = is_graph_factor(op, graph, factor);
  auto batch = std::make_shared<const Batch>(op, Plan(op, {graph}), true);
  const Graph one = scalar_graph(1.0, false);
  if (batch->is_fused(0)) {
    const Graph out =
        record_gradients(op, batch, {&one, 1}, {is_graph, !is_graph})[is_graph ? 0 : 1];
    const std::vector<ResolvedGraph>& resolved = batch->plan().resolved;
    return is_graph && !resolved.empty() ? original_gradient(op, factor, resolved[0], out) : out;
  }
  const Graph posteriors = record_posteriors(
      op, graph, std::make_shared<const LogPartition>(op, graph, true), one, graph.dtype());
  const Product& product = *graph.product();
  const size_t which = is_graph == (product.side() == Side::output) ? 0 : 1;
  return product.rule().record({&posteriors, 1}, {which == 0, which == 1})[which];
}

}  // namespace arcgrad::trellis
