// Best scores and best paths of a list: runs find_best() on the groups of a plan, and records the
// results on the tape.

#include "arcgrad/trellis/viterbi.h"

#include <algorithm>
#include <iterator>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/best_path.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/thresholds.h"
#include "arcgrad/trellis/best/best.h"
#include "arcgrad/trellis/plan.h"
#include "arcgrad/trellis/recorded_gradients.h"

namespace arcgrad::trellis {
namespace {

/// The best paths through a batch of products.
struct BestBatch {
  BestBatch(const char* op, Plan planned, bool with_paths)
      : plan(std::move(planned)), best(plan.examples.size()), is_fused(plan.examples.size(), true) {
    struct PathChunk {
      size_t group;
      std::span<const size_t> examples;
    };
    std::vector<PathChunk> chunks;
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const std::vector<size_t>& all = plan.groups[g].examples;
      // The path of an example does not depend on the other examples of its chunk, so the size of
      // chunks may depend on the number of threads.
      size_t most = kLanes;
      if (all.size() > 1 && plan.trellis_graph(plan.groups[g])->is_dense)
        most = std::min(kDenseRows, (all.size() - 1) / get_num_threads() + 1);
      for (size_t begin = 0; begin < all.size(); begin += most)
        chunks.push_back({g, {all.data() + begin, std::min(most, all.size() - begin)}});
    }
    std::vector<char> is_materialised(chunks.size());
    parallel_for(chunks.size(), [&](size_t k) {
      const auto& [g, examples] = chunks[k];
      const Plan::Group& group = plan.groups[g];
      std::vector<Emissions> views;
      for (size_t i : examples) views.push_back(plan.examples[i].view);
      const TrellisGraph& trellis_graph = *plan.trellis_graph(group);
      if (!plan.choose(op, group).run) {
        is_materialised[k] = true;
        return;
      }
      try {
        std::vector<BestAlignment> found =
            find_best(op, trellis_graph, plan.graphs[group.graph].weights(), views, with_paths);
        for (size_t j = 0; j < examples.size(); ++j) best[examples[j]] = std::move(found[j]);
      } catch (const std::invalid_argument&) {
        plan.rethrow(op, trellis_graph, examples);
      }
    });
    for (size_t k = 0; k < chunks.size(); ++k)
      if (is_materialised[k])
        for (size_t i : chunks[k].examples) is_fused[i] = false;
  }

  /// The arc of the emissions that a step uses, or -1.
  int32_t emission_arc(size_t i, const BestStep& step) const {
    return step.frame < 0 ? -1 : step.frame * plan.examples[i].view.labels + step.label;
  }

  /// The path of an example as a graph.
  Graph path(const char* op, size_t i) const {
    const size_t g = plan.examples[i].graph;
    const Graph& graph = plan.graphs[g];
    // The arcs of the graph that failure arcs lead to stand for these, too.
    std::vector<BestStep> steps;
    std::vector<std::vector<int32_t>> inner;
    size_t num_inner = 0;
    for (const BestStep& step : best[i].steps) {
      if (!plan.resolved.empty() && plan.resolved[g].is_inner(step.arc)) {
        if (num_inner == inner.size()) inner.emplace_back();
        inner[num_inner].resize(steps.size(), -1);
        inner[num_inner++].push_back(step.arc);
      } else {
        steps.push_back(step);
        num_inner = 0;
      }
    }
    std::vector<int32_t> graph_arcs(steps.size()), emission_arcs(steps.size());
    for (size_t k = 0; k < steps.size(); ++k) {
      graph_arcs[k] = steps[k].arc;
      emission_arcs[k] = emission_arc(i, steps[k]);
    }
    Arrays chain;
    if (best[i].start >= 0) {
      // Each arc of an acceptor has its label on both sides.
      const Topology& topology = graph.topology();
      move_start_weight(topology, graph_arcs);
      move_start_weight(topology, emission_arcs);
      Column labels(steps.size());
      for (size_t k = 0; k < steps.size(); ++k) labels[k] = steps[k].label;
      chain = topology.is_acceptor() && !topology.has_node_weights()
                  ? chain_arrays(std::move(labels))
                  : path_arrays(topology, graph_arcs);
    }
    chain.symbols = symbols_of(plan.examples[i].product);
    std::vector<Moved> inputs{
        {graph, ArcMap::gather(std::move(graph_arcs))},
        {plan.emissions[plan.examples[i].emissions], ArcMap::gather(std::move(emission_arcs))}};
    for (std::vector<int32_t>& arcs : inner)
      inputs.push_back({graph, ArcMap::gather(std::move(arcs))});
    return record_moves(op, std::make_shared<Topology>(std::move(chain)), std::move(inputs));
  }

  Plan plan;
  std::vector<BestAlignment> best;
  std::vector<bool> is_fused;
};

void add_at(Gradient& grad, int32_t arc, double value) {
  dispatch(grad.dtype(), [&](auto kind) {
    grad.sum().fill<decltype(kind)>()[static_cast<size_t>(arc)] +=
        static_cast<decltype(kind)>(value);
  });
}

/// The transpose of BestRule: sums the tangents of factors along the best paths.
class PathTangentRule final : public Rule {
 public:
  PathTangentRule(std::shared_ptr<const BestBatch> batch, std::vector<size_t> outputs)
      : batch_(std::move(batch)), outputs_(std::move(outputs)) {}

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const Plan& plan = batch_->plan;
    std::vector<const Weights*> tangents(plan.graphs.size() + plan.emissions.size());
    for (size_t k = 0; k < outputs_.size(); ++k)
      if (deltas[k]) tangents[outputs_[k]] = &deltas[k];
    for (size_t i = 0; i < plan.examples.size(); ++i) {
      if (!grads[i]) continue;
      const Weights* graph = tangents[plan.examples[i].graph];
      const Weights* emissions = tangents[plan.graphs.size() + plan.examples[i].emissions];
      double sum = 0.0;
      for (const BestStep& step : batch_->best[i].steps) {
        if (graph) sum += (*graph)[step.arc];
        if (const int32_t a = batch_->emission_arc(i, step); emissions && a >= 0)
          sum += (*emissions)[a];
      }
      add_at(*grads[i], 0, sum);
    }
  }

 private:
  std::shared_ptr<const BestBatch> batch_;
  std::vector<size_t> outputs_;
};

/// The derivative of a best score is 1 for each use of an arc by the best path. Inputs: the
/// products (optional), then the graphs, then the emissions.
class BestRule final : public Rule {
 public:
  explicit BestRule(std::shared_ptr<const BestBatch> batch) : batch_(std::move(batch)) {}

  // One call must see all gradients, to know which products are wanted.
  bool is_parallel() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const size_t count = batch_->plan.examples.size();
    for (size_t i = 0; i < count; ++i) {
      if (!deltas[i]) continue;
      if (!grads[i]) {
        add_path(i, deltas[i][0], grads.subspan(count));
        continue;
      }
      const Graph& product = batch_->plan.examples[i].product;
      for (int32_t a : find_best_path(op, product).arcs) add_at(*grads[i], a, deltas[i][0]);
    }
  }

  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    const Plan& plan = batch_->plan;
    const size_t count = plan.examples.size();
    for (size_t i = 0; i < count; ++i)
      if (wanted[i])
        throw TapeError(text(op,
                             ": the gradient of a product cannot be put on the tape; score a "
                             "clone of it"));
    std::vector<Graph> factors(plan.graphs), inputs;
    factors.insert(factors.end(), plan.emissions.begin(), plan.emissions.end());
    RecordedGradients grads(factors,
                            {wanted.begin() + static_cast<std::ptrdiff_t>(count), wanted.end()});
    for (size_t i = 0; i < count; ++i) {
      if (deltas[i]) add_path(i, deltas[i].item(), grads.destinations());
      inputs.push_back(deltas[i] ? deltas[i] : scalar_graph(0.0, false));
    }
    std::vector<Graph> out(count, nullptr);
    std::ranges::move(grads.record(op, inputs,
                                   [&](std::vector<size_t> outputs) {
                                     return std::make_unique<PathTangentRule>(batch_,
                                                                              std::move(outputs));
                                   }),
                      std::back_inserter(out));
    return out;
  }

 private:
  void add_path(size_t i, double delta, std::span<Gradient* const> grads) const {
    const Plan& plan = batch_->plan;
    Gradient* const graph = grads[plan.examples[i].graph];
    Gradient* const emissions = grads[plan.graphs.size() + plan.examples[i].emissions];
    for (const BestStep& step : batch_->best[i].steps) {
      if (graph) add_at(*graph, step.arc, delta);
      if (const int32_t a = batch_->emission_arc(i, step); emissions && a >= 0)
        add_at(*emissions, a, delta);
    }
  }

  std::shared_ptr<const BestBatch> batch_;
};

/// The indices of the elements that are not products, ascending.
std::vector<size_t> other_positions(const Plan& plan) {
  std::vector<size_t> out;
  std::ranges::merge(plan.linear, plan.with_arcs, std::back_inserter(out));
  return out;
}

}  // namespace

std::vector<Graph> best_scores(const char* op, const std::vector<Graph>& graphs) {
  Plan plan(op, graphs);
  std::vector<Graph> out(graphs.size(), nullptr);
  std::vector<size_t> with_arcs = other_positions(plan);
  if (!plan.examples.empty()) {
    const bool keep = std::ranges::any_of(
        plan.examples, [](const Plan::Example& example) { return tracks(example.product); });
    auto batch = std::make_shared<const BestBatch>(op, std::move(plan), keep);
    const std::vector<Plan::Example>& examples = batch->plan.examples;
    std::vector<Graph> outputs;
    for (size_t k = 0; k < examples.size(); ++k) {
      outputs.emplace_back(scalar_topology(), Weights::scalar(batch->best[k].score));
      if (batch->is_fused[k])
        out[examples[k].position] = outputs.back();
      else
        with_arcs.push_back(examples[k].position);
    }
    if (keep)
      record_entry(op, outputs, batch->plan.tape_inputs(), examples.size(),
                   std::make_unique<BestRule>(batch));
  }
  for_positions(op, graphs.size(), with_arcs,
                [&](size_t i) { out[i] = viterbi_score_of_arcs(op, graphs[i]); });
  return out;
}

std::vector<Graph> viterbi_paths(const char* op, const std::vector<Graph>& graphs) {
  Plan plan(op, graphs);
  std::vector<Graph> out(graphs.size(), nullptr);
  std::vector<size_t> with_arcs = other_positions(plan);
  if (!plan.examples.empty()) {
    const BestBatch batch(op, std::move(plan), true);
    std::vector<size_t> fused;
    int64_t num_steps = 0;
    for (size_t k = 0; k < batch.best.size(); ++k) {
      const Plan::Example& example = batch.plan.examples[k];
      const auto var = example.product.var();
      if (!batch.is_fused[k] || (var && var->retain_grad)) {
        with_arcs.push_back(example.position);
        continue;
      }
      if (tracks(example.product)) example.product.product()->bypass();
      fused.push_back(k);
      num_steps += static_cast<int64_t>(batch.best[k].steps.size());
    }
    (num_steps < thresholds.small_batch ? serial_for : parallel_for)(fused.size(), [&](size_t f) {
      out[batch.plan.examples[fused[f]].position] = batch.path(op, fused[f]);
    });
  }
  for_positions(op, graphs.size(), with_arcs,
                [&](size_t i) { out[i] = viterbi_path_of_arcs(op, graphs[i]); });
  return out;
}

Graph factor_counts(const char* op, const Graph& graph, const Graph& factor) {
  const bool is_graph = is_graph_factor(op, graph, factor);
  const BestBatch batch(op, Plan(op, {graph}), true);
  const bool is_resolved = is_graph && batch.is_fused[0] && !batch.plan.resolved.empty();
  const Graph& counted = is_resolved ? batch.plan.graphs[0] : factor;
  Gradient counts(counted.num_weights(), factor.dtype());
  if (batch.is_fused[0]) {
    for (const BestStep& step : batch.best[0].steps)
      if (const int32_t a = is_graph ? step.arc : batch.emission_arc(0, step); a >= 0)
        add_at(counts, a, 1.0);
  } else {
    Gradient arcs(graph.num_weights(), graph.dtype());
    for (int32_t a : find_best_path(op, graph).arcs) add_at(arcs, a, 1.0);
    const bool is_first = is_graph == (graph.product()->side() == Side::output);
    Gradient* const grads[] = {is_first ? &counts : nullptr, is_first ? nullptr : &counts};
    graph.product()->rule().add({&arcs.sum(), 1}, grads);
  }
  const Graph out(counted.topology_ptr(), counts.sum());
  return is_resolved ? original_gradient(op, factor, batch.plan.resolved[0], out) : out;
}

}  // namespace arcgrad::trellis
