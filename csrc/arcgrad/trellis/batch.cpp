// Runs the chunks of a plan in parallel: forward, backward, and Hessian-vector products.

#include "arcgrad/trellis/batch.h"

#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/thresholds.h"
#include "arcgrad/trellis/hvp/hvp.h"
#include "arcgrad/trellis/recorded_gradients.h"
#include "arcgrad/trellis/testing.h"

namespace arcgrad::trellis {
namespace {

/// No kernel runs more examples side by side.
constexpr size_t kMostTogether = 64;

std::vector<std::vector<double>> to_doubles(std::span<const Weights> tangents) {
  std::vector<std::vector<double>> out;
  for (const Weights& tangent : tangents)
    out.push_back(tangent ? tangent.to_vector() : std::vector<double>());
  return out;
}

/// Differentiates the gradients of a batch. Its outputs are gradients of factors, its inputs the
/// factors (graphs, then emissions) and one delta per example.
class GradientsRule final : public Rule {
 public:
  GradientsRule(std::shared_ptr<const Batch> batch, std::vector<double> deltas,
                std::vector<size_t> outputs)
      : batch_(std::move(batch)), deltas_(std::move(deltas)), outputs_(std::move(outputs)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const Plan& plan = batch_->plan();
    const size_t num_graphs = plan.graphs.size(), num_factors = num_graphs + plan.emissions.size();
    std::vector<Weights> tangents(num_factors);
    for (size_t k = 0; k < outputs_.size(); ++k) tangents[outputs_[k]] = deltas[k];
    std::vector<double> jvps(plan.examples.size());
    const std::span<const Weights> all(tangents);
    batch_->add_hvps(deltas_, all.first(num_graphs), all.subspan(num_graphs),
                     grads.first(num_graphs), grads.subspan(num_graphs, plan.emissions.size()),
                     jvps);
    for (size_t i = 0; i < jvps.size(); ++i)
      if (Gradient* grad = grads[num_factors + i])
        ArcMap::identity().apply(Weights::scalar(jvps[i]), grad->sum(), 1.0);
  }

 private:
  std::shared_ptr<const Batch> batch_;
  std::vector<double> deltas_;
  std::vector<size_t> outputs_;  // the factor of each output
};

bool is_small(int64_t work) { return work < thresholds.small_batch; }

/// Calls `run(k)` for each k below `count`, in parallel. Calls that use several threads themselves
/// are made one after the other if they are too few to occupy all threads; if the total `work` is
/// small, all are. Throws the first error of an input in the order of k.
template <class Divides, class RunJob>
void run_jobs(size_t count, int64_t work, const Divides& divides, const RunJob& run) {
  std::vector<size_t> whole, divided;
  for (size_t k = 0; k < count; ++k) (divides(k) ? divided : whole).push_back(k);
  const size_t rest = divided.size() % static_cast<size_t>(get_num_threads());
  whole.insert(whole.end(), divided.begin(), divided.end() - static_cast<std::ptrdiff_t>(rest));
  std::vector<std::exception_ptr> errors(count);
  const auto run_one = [&](size_t k) {
    try {
      run(k);
    } catch (const std::invalid_argument&) {
      errors[k] = std::current_exception();
    }
  };
  (is_small(work) ? serial_for : parallel_for)(whole.size(), [&](size_t i) { run_one(whole[i]); });
  for (size_t i = divided.size() - rest; i < divided.size(); ++i) run_one(divided[i]);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

Batch::Batch(const char* op, Plan plan, bool keep, std::shared_ptr<Frames> frames)
    : op_(op), plan_(std::move(plan)), factors_(plan_.groups.size()), frames_(std::move(frames)) {
  scores_.assign(plan_.examples.size(), kNegInf);
  is_fused_.assign(plan_.examples.size(), true);
  std::vector<const KernelEntry*> kernels(plan_.groups.size());
  // A group of one chunk runs immediately, on the thread that makes its factor.
  std::vector<std::vector<Chunk>> chunks(plan_.groups.size());
  const int64_t work = plan_.work();
  (is_small(work) ? serial_for : parallel_for)(plan_.groups.size(), [&](size_t g) {
    const Plan::Group& group = plan_.groups[g];
    try {
      kernels[g] = &plan_.choose(op_, group);
      if (!kernels[g]->run) return;
      factors_[g] = std::make_shared<const Factor>(op_, plan_.trellis_graph(group),
                                                   plan_.graphs[group.graph].raw_weights());
      if (kernels[g]->prepare)
        kernels[g]->prepare(*factors_[g], plan_.examples[group.examples.front()].view.dtype);
    } catch (...) {
      plan_.rethrow(op_, group.examples.front());
    }
    const size_t size = kernels[g]->chunk_size(group.examples.size());
    for (size_t begin = 0; begin < group.examples.size(); begin += size) {
      const size_t count = std::min(size, group.examples.size() - begin);
      chunks[g].push_back({g, kernels[g], {group.examples.data() + begin, count}, {}});
      chunks[g].back().divides_frames =
          kernels[g]->divides_frames &&
          kernels[g]->divides_frames(*plan_.trellis_graph(group), count);
    }
    if (chunks[g].size() == 1 && !chunks[g][0].divides_frames) run_chunk(chunks[g][0], keep);
  });
  std::vector<Chunk*> left;
  for (size_t g = 0; g < chunks.size(); ++g) {
    if (!kernels[g]->run)
      for (size_t i : plan_.groups[g].examples) is_fused_[i] = false;
    for (Chunk& chunk : chunks[g])
      if (chunks[g].size() > 1 || chunk.divides_frames) left.push_back(&chunk);
  }
  run_jobs(
      left.size(), work, [&](size_t k) { return left[k]->divides_frames; },
      [&](size_t k) { run_chunk(*left[k], keep); });
  for (auto& list : chunks)
    for (Chunk& chunk : list) chunks_.push_back(std::move(chunk));
}

void Batch::run_chunk(Chunk& chunk, bool keep) {
  const Plan::Group& group = plan_.groups[chunk.group];
  const auto& factor = factors_[chunk.group];
  std::vector<Emissions> views;
  int64_t frames = 0;
  for (size_t i : chunk.examples) {
    views.push_back(plan_.examples[i].view);
    frames = std::max<int64_t>(frames, views.back().frames);
  }
  if (frames_) sum_frames(chunk);
  constexpr int64_t kBytesPerValue = 8;
  const RunOptions options{
      op_, keep,
      history_stride(frames, kBytesPerValue * factor->trellis_graph->num_values,
                     static_cast<int64_t>(plan_.examples.size()))};
  auto add = [&](std::unique_ptr<Run> run, size_t begin, size_t count) {
    for (size_t k = 0; k < count; ++k) scores_[chunk.examples[begin + k]] = run->scores[k];
    if (keep) chunk.runs.push_back({std::move(run), begin, count});
  };
  try {
    if (auto run = chunk.kernel->run(factor, views, options)) {
      add(std::move(run), 0, views.size());
      return;
    }
    for (size_t begin = 0; begin < views.size(); begin += kLanes) {
      const size_t count = std::min(kLanes, views.size() - begin);
      add(run_lanes(factor, {views.data() + begin, count}, options), begin, count);
    }
  } catch (const std::invalid_argument&) {
    plan_.rethrow(op_, *plan_.trellis_graph(group), chunk.examples);
  }
}

void Batch::sum_frames(const Chunk& chunk) const {
  for (size_t i : chunk.examples) {
    try {
      frames_->sum(i);
    } catch (...) {
      plan_.rethrow(op_, i);
    }
  }
}

std::vector<double> Batch::frame_scores(size_t i) const {
  for (const Chunk& chunk : chunks_)
    for (const auto& [run, begin, count] : chunk.runs)
      for (size_t k = 0; k < count; ++k)
        if (chunk.examples[begin + k] == i) return run->frame_scores(k);
  return {};
}

/// Adds the gradients of the emissions of a chunk, and returns the gradient of the arcs of its
/// graph.
Buffer<double> Batch::run_gradient_job(const GradientJob& job, const EmissionsGrads& to) {
  const auto& [flow, chunk, first] = job;
  const Batch& batch = *flow.batch;
  const Plan& plan = batch.plan_;
  const size_t graph = plan.groups[chunk.group].graph;
  Buffer<double> arcs;
  if (flow.graph_grads[graph])
    arcs.assign(static_cast<size_t>(plan.graphs[graph].num_weights()), 0.0);
  for (const auto& [run, begin, count] : chunk.runs) {
    std::array<double, kMostTogether> delta;
    std::array<EmissionsGrad, kMostTogether> grads;
    for (size_t j = 0; j < count; ++j) {
      const size_t i = chunk.examples[begin + j];
      const int32_t frames = plan.examples[i].view.frames;
      delta[j] = flow.deltas[i];
      grads[j] = to.at(first + i);
      const double frame_delta = flow.frame_deltas.empty() || batch.frames_->score(i) == kNegInf
                                     ? 0.0
                                     : flow.frame_deltas[i];
      if (frame_delta != 0.0 && grads[j].is_unset)
        grads[j].start_from(*batch.frames_, i, frame_delta);
      else if (frame_delta != 0.0 && grads[j].data)
        batch.frames_->add_rows(i, frame_delta, grads[j], 0, frames);
      if (!grads[j].is_unset ||
          (run->clears_rows() && delta[j] != 0.0 && run->scores[j] != kNegInf))
        continue;
      grads[j].clear(0, frames);
      grads[j].is_unset = false;
    }
    run->add_gradients({delta.data(), count}, {grads.data(), count}, arcs);
  }
  return arcs;
}

void Batch::add_gradients(std::span<const Flow> flows) {
  std::vector<Gradient*> of_examples;
  std::vector<int32_t> labels;
  std::vector<GradientJob> jobs;
  int64_t work = 0;
  for (const Flow& flow : flows) {
    work += flow.batch->plan_.work();
    for (const Chunk& chunk : flow.batch->chunks_)
      jobs.push_back({flow, chunk, of_examples.size()});
    flow.batch->list_destinations(flow.emission_grads, of_examples, labels);
  }
  const EmissionsGrads to(std::move(of_examples), std::move(labels));
  size_t first = 0;
  for (const Flow& flow : flows) {
    flow.batch->clear_unused(to, first);
    first += flow.deltas.size();
  }
  std::vector<Buffer<double>> arcs(jobs.size());
  run_jobs(
      jobs.size(), work, [&](size_t k) { return jobs[k].chunk.divides_frames; },
      [&](size_t k) { arcs[k] = run_gradient_job(jobs[k], to); });
  to.join();
  size_t done = 0;
  for (const Flow& flow : flows) {
    const size_t count = flow.batch->chunks_.size();
    flow.batch->sum_arcs({arcs.data() + done, count}, flow.graph_grads);
    done += count;
  }
}

void Batch::add_hvps(std::span<const double> deltas, std::span<const Weights> graph_tangents,
                     std::span<const Weights> emission_tangents,
                     std::span<Gradient* const> graph_grads,
                     std::span<Gradient* const> emission_grads, std::span<double> jvps) const {
  std::vector<Gradient*> of_examples;
  std::vector<int32_t> labels;
  list_destinations(emission_grads, of_examples, labels);
  const EmissionsGrads to(std::move(of_examples), std::move(labels));
  clear_unused(to, 0);
  const auto arc_tangents = to_doubles(graph_tangents),
             frame_tangents = to_doubles(emission_tangents);
  std::vector<Buffer<double>> arcs(chunks_.size());
  parallel_for(chunks_.size(), [&](size_t k) {
    const Chunk& chunk = chunks_[k];
    const Plan::Group& group = plan_.groups[chunk.group];
    if (graph_grads[group.graph])
      arcs[k].assign(static_cast<size_t>(plan_.graphs[group.graph].num_weights()), 0.0);
    std::vector<HvpExample> examples;
    for (size_t i : chunk.examples) {
      const Plan::Example& example = plan_.examples[i];
      if (to.at(i).is_unset) to.at(i).clear(0, example.view.frames);
      examples.push_back({example.view, frame_tangents[example.emissions], deltas[i], to.at(i)});
    }
    std::vector<double> found(examples.size());
    trellis::add_hvps(op_, *factors_[chunk.group], arc_tangents[group.graph], examples, arcs[k],
                      found);
    for (size_t j = 0; j < found.size(); ++j) jvps[chunk.examples[j]] = found[j];
  });
  to.join();
  sum_arcs(arcs, graph_grads);
}

/// Appends the destination of the gradient of the emissions of each example.
void Batch::list_destinations(std::span<Gradient* const> grads, std::vector<Gradient*>& of_examples,
                              std::vector<int32_t>& labels) const {
  for (const Plan::Example& example : plan_.examples) {
    of_examples.push_back(grads[example.emissions]);
    labels.push_back(example.view.labels);
  }
}

/// Clears the gradients of the examples that are not in a chunk. Example 0 of this batch is at
/// `first` in `to`.
void Batch::clear_unused(const EmissionsGrads& to, size_t first) const {
  for (size_t i = 0; i < plan_.examples.size(); ++i) {
    if (is_fused_[i]) continue;
    const EmissionsGrad grad = to.at(first + i);
    if (grad.is_unset) grad.clear(0, plan_.examples[i].view.frames);
  }
}

/// Adds the gradients of arcs, one array per chunk, to the gradients of the graphs, in an order
/// that does not depend on the threads.
void Batch::sum_arcs(std::span<Buffer<double>> arcs, std::span<Gradient* const> grads) const {
  for (size_t k = 0; k < chunks_.size();) {
    const size_t first = k, graph = plan_.groups[chunks_[k].group].graph;
    for (++k; k < chunks_.size() && plan_.groups[chunks_[k].group].graph == graph; ++k)
      for (size_t a = 0; a < arcs[first].size(); ++a) arcs[first][a] += arcs[k][a];
    if (grads[graph])
      ArcMap::identity().apply(Weights::from(arcs[first]), grads[graph]->sum(), 1.0);
  }
}

std::vector<Graph> record_gradients(const char* op, const std::shared_ptr<const Batch>& batch,
                                    std::span<const Graph> deltas,
                                    const std::vector<bool>& wanted) {
  const Plan& plan = batch->plan();
  const size_t num_graphs = plan.graphs.size();
  std::vector<Graph> factors(plan.graphs);
  factors.insert(factors.end(), plan.emissions.begin(), plan.emissions.end());
  RecordedGradients grads(factors, wanted);
  std::vector<Graph> inputs(factors);
  std::vector<double> scale;
  for (const Graph& delta : deltas) {
    scale.push_back(delta ? delta.item() : 0.0);
    inputs.push_back(delta ? delta : scalar_graph(0.0, false));
  }
  const std::span<Gradient* const> to = grads.destinations();
  const Batch::Flow flow{batch.get(), scale, to.first(num_graphs), to.subspan(num_graphs)};
  Batch::add_gradients({&flow, 1});
  return grads.record(op, inputs, [&](std::vector<size_t> outputs) {
    return std::make_unique<GradientsRule>(batch, std::move(scale), std::move(outputs));
  });
}

std::vector<double> frame_scores(const Graph& product) {
  return Batch("frame_scores", Plan("frame_scores", {product}), true).frame_scores(0);
}

}  // namespace arcgrad::trellis
