#include <algorithm>
#include <array>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/log_partition.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/of_arcs.h"
#include "arcgrad/runtime/key_index.h"
#include "arcgrad/trellis/hvp/hvp.h"
#include "arcgrad/trellis/kernels/frames.h"
#include "arcgrad/trellis/plan.h"

namespace arcgrad::trellis {
namespace {

/// The forward scores of a batch of products.
class Batch {
 public:
  /// With `frames`, one example of it per example of the plan is summed as well, while its
  /// emissions are in the cache.
  Batch(const char* op, Plan plan, bool keep, std::shared_ptr<Frames> frames = nullptr)
      : op_(op), plan_(std::move(plan)), factors_(plan_.groups.size()), frames_(std::move(frames)) {
    scores_.assign(plan_.examples.size(), kNegInf);
    is_fused_.assign(plan_.examples.size(), true);
    std::vector<Kernel> kernels(plan_.groups.size());
    // A group that is one piece is run where its factor is made.
    std::vector<std::vector<Piece>> pieces(plan_.groups.size());
    parallel_for(plan_.groups.size(), [&](size_t g) {
      const Plan::Group& group = plan_.groups[g];
      try {
        kernels[g] = plan_.choose(op_, group);
        if (kernels[g] == Kernel::materialised) return;
        factors_[g] = std::make_shared<const Factor>(op_, plan_.form(group),
                                                     plan_.graphs[group.graph].raw_weights());
        if (kernels[g] == Kernel::dense)
          prepare_dense(*factors_[g], plan_.examples[group.examples.front()].view.dtype);
      } catch (...) {
        plan_.rethrow(op_, group.examples.front());
      }
      const size_t size = chunk_size(kernels[g], group.examples.size());
      for (size_t begin = 0; begin < group.examples.size(); begin += size)
        pieces[g].push_back(
            {g,
             kernels[g],
             {group.examples.data() + begin, std::min(size, group.examples.size() - begin)},
             {}});
      if (pieces[g].size() == 1) run(pieces[g][0], keep);
    });
    std::vector<Piece*> left;
    for (size_t g = 0; g < pieces.size(); ++g) {
      if (kernels[g] == Kernel::materialised)
        for (size_t i : plan_.groups[g].examples) is_fused_[i] = false;
      if (pieces[g].size() > 1)
        for (Piece& piece : pieces[g]) left.push_back(&piece);
    }
    parallel_for(left.size(), [&](size_t k) { run(*left[k], keep); });
    for (auto& list : pieces)
      for (Piece& piece : list) pieces_.push_back(std::move(piece));
  }

  const Plan& plan() const { return plan_; }
  bool is_fused(size_t i) const { return is_fused_[i]; }
  double score(size_t i) const { return scores_[i]; }
  const std::shared_ptr<Frames>& frames() const { return frames_; }

  std::vector<double> frame_scores(size_t i) const {
    for (const Piece& piece : pieces_)
      for (const auto& [run, begin, count] : piece.runs)
        for (size_t k = 0; k < count; ++k)
          if (piece.examples[begin + k] == i) return run->frame_scores(k);
    return {};
  }

  /// What flows into the scores of a batch, and where to: `deltas[i]` times the posteriors of
  /// example i are added to the gradients of its factors, and `of_frames[i]` times those of its
  /// frames unless that is empty. A null gradient is not wanted.
  struct Flow {
    const Batch* batch;
    std::vector<double> deltas;
    std::span<Weights* const> graph_grads, emission_grads;
    std::vector<double> of_frames = {};
  };
  static void add_gradients(std::span<const Flow> flows) {
    std::vector<Weights*> of_examples;
    std::vector<int32_t> labels;
    struct Job {
      const Flow& flow;
      const Piece& piece;
      size_t first;  // example of the batch, among all
    };
    std::vector<Job> jobs;
    for (const Flow& flow : flows) {
      for (const Piece& piece : flow.batch->pieces_)
        jobs.push_back({flow, piece, of_examples.size()});
      flow.batch->list_destinations(flow.emission_grads, of_examples, labels);
    }
    const EmissionsGrads to(std::move(of_examples), std::move(labels));
    size_t first = 0;
    for (const Flow& flow : flows) {
      flow.batch->clear_unused(to, first);
      first += flow.deltas.size();
    }
    std::vector<Buffer<double>> arcs(jobs.size());
    parallel_for(jobs.size(), [&](size_t k) {
      const auto& [flow, piece, begin_of_batch] = jobs[k];
      const Batch& batch = *flow.batch;
      const Plan& plan = batch.plan_;
      const size_t graph = plan.groups[piece.group].graph;
      if (flow.graph_grads[graph])
        arcs[k].assign(static_cast<size_t>(plan.graphs[graph].num_arcs()), 0.0);
      for (const auto& [run, begin, count] : piece.runs) {
        std::array<double, kMostTogether> delta;
        std::array<EmissionsGrad, kMostTogether> grads;
        for (size_t j = 0; j < count; ++j) {
          const size_t i = piece.examples[begin + j];
          const int32_t frames = plan.examples[i].view.frames;
          delta[j] = flow.deltas[i];
          grads[j] = to.at(begin_of_batch + i);
          const double of_frames = flow.of_frames.empty() || batch.frames_->score(i) == kNegInf
                                       ? 0.0
                                       : flow.of_frames[i];
          if (of_frames != 0.0 && grads[j].is_unset)
            grads[j].fill_with(*batch.frames_, i, of_frames);
          else if (of_frames != 0.0 && grads[j].data)
            batch.frames_->add_rows(i, of_frames, grads[j], 0, frames);
          if (!grads[j].is_unset ||
              (run->clears_rows() && delta[j] != 0.0 && run->scores[j] != kNegInf))
            continue;
          grads[j].clear(0, frames);
          grads[j].is_unset = false;
        }
        run->add_gradients({delta.data(), count}, {grads.data(), count}, arcs[k]);
      }
    });
    to.join();
    size_t done = 0;
    for (const Flow& flow : flows) {
      const size_t count = flow.batch->pieces_.size();
      flow.batch->sum_arcs({arcs.data() + done, count}, flow.graph_grads);
      done += count;
    }
  }

  /// The same for the derivatives of the posteriors along a direction per factor, scaled by
  /// `deltas`; `slopes` receives the derivatives of the scores.
  void add_hvps(std::span<const double> deltas, std::span<const Weights> graph_moves,
                std::span<const Weights> emission_moves, std::span<Weights* const> graph_grads,
                std::span<Weights* const> emission_grads, std::span<double> slopes) const {
    std::vector<Weights*> of_examples;
    std::vector<int32_t> labels;
    list_destinations(emission_grads, of_examples, labels);
    const EmissionsGrads to(std::move(of_examples), std::move(labels));
    clear_unused(to, 0);
    const auto to_doubles = [](std::span<const Weights> moves) {
      std::vector<std::vector<double>> out;
      for (const Weights& move : moves)
        out.push_back(move ? move.to_vector() : std::vector<double>());
      return out;
    };
    const auto arc_moves = to_doubles(graph_moves), frame_moves = to_doubles(emission_moves);
    std::vector<Buffer<double>> arcs(pieces_.size());
    parallel_for(pieces_.size(), [&](size_t k) {
      const Piece& piece = pieces_[k];
      const Plan::Group& group = plan_.groups[piece.group];
      if (graph_grads[group.graph])
        arcs[k].assign(static_cast<size_t>(plan_.graphs[group.graph].num_arcs()), 0.0);
      std::vector<HvpExample> examples;
      for (size_t i : piece.examples) {
        const Plan::Example& example = plan_.examples[i];
        if (to.at(i).is_unset) to.at(i).clear(0, example.view.frames);
        examples.push_back({example.view, frame_moves[example.emissions], deltas[i], to.at(i)});
      }
      std::vector<double> moved(examples.size());
      trellis::add_hvps(op_, *factors_[piece.group], arc_moves[group.graph], examples, arcs[k],
                        moved);
      for (size_t j = 0; j < moved.size(); ++j) slopes[piece.examples[j]] = moved[j];
    });
    to.join();
    sum_arcs(arcs, graph_grads);
  }

 private:
  static constexpr size_t kMostTogether = 64;
  struct PartialRun {
    std::unique_ptr<Run> run;
    size_t begin, count;  // of the examples of the piece
  };
  /// Examples of one group that run together.
  struct Piece {
    size_t group;
    Kernel kernel;
    std::span<const size_t> examples;
    std::vector<PartialRun> runs;
  };

  /// Appends where the gradients of the examples' emissions go.
  void list_destinations(std::span<Weights* const> grads, std::vector<Weights*>& of_examples,
                         std::vector<int32_t>& labels) const {
    for (const Plan::Example& example : plan_.examples) {
      of_examples.push_back(grads[example.emissions]);
      labels.push_back(example.view.labels);
    }
  }

  /// Clears the gradients of examples that no piece runs; that of the first one is `first`.
  void clear_unused(const EmissionsGrads& to, size_t first) const {
    for (size_t i = 0; i < plan_.examples.size(); ++i) {
      if (is_fused_[i]) continue;
      const EmissionsGrad grad = to.at(first + i);
      if (grad.is_unset) grad.clear(0, plan_.examples[i].view.frames);
    }
  }

  /// Adds the sums of the pieces to the gradients of their graphs, in the order of the list
  /// whatever thread was first.
  void sum_arcs(std::span<Buffer<double>> arcs, std::span<Weights* const> grads) const {
    for (size_t k = 0; k < pieces_.size();) {
      const size_t first = k, graph = plan_.groups[pieces_[k].group].graph;
      for (++k; k < pieces_.size() && plan_.groups[pieces_[k].group].graph == graph; ++k)
        for (size_t a = 0; a < arcs[first].size(); ++a) arcs[first][a] += arcs[k][a];
      if (grads[graph]) ArcMap::identity().apply(Weights::from(arcs[first]), *grads[graph], 1.0);
    }
  }

  void sum_frames(const Piece& piece) const {
    for (size_t i : piece.examples) {
      try {
        frames_->sum(i);
      } catch (...) {
        plan_.rethrow(op_, i);
      }
    }
  }

  void run(Piece& piece, bool keep) {
    const Plan::Group& group = plan_.groups[piece.group];
    const auto& factor = factors_[piece.group];
    std::vector<Emissions> views;
    int64_t frames = 0;
    for (size_t i : piece.examples) {
      views.push_back(plan_.examples[i].view);
      frames = std::max<int64_t>(frames, views.back().frames);
    }
    if (frames_) sum_frames(piece);
    constexpr int64_t kBytesPerValue = 8;
    const Options options{op_, keep,
                          history_stride(frames, kBytesPerValue * factor->form->num_values,
                                         static_cast<int64_t>(plan_.examples.size()))};
    auto add = [&](std::unique_ptr<Run> run, size_t begin, size_t count) {
      for (size_t k = 0; k < count; ++k) scores_[piece.examples[begin + k]] = run->scores[k];
      if (keep) piece.runs.push_back({std::move(run), begin, count});
    };
    try {
      if (piece.kernel == Kernel::dense) {
        if (auto run = run_dense(factor, views, options)) {
          add(std::move(run), 0, views.size());
          return;
        }
      }
      if (piece.kernel == Kernel::diagonal) {
        add(run_diagonal(factor, views[0], options), 0, 1);
      } else if (piece.kernel == Kernel::csr) {
        add(run_csr(factor, views[0], options), 0, 1);
      } else {
        for (size_t begin = 0; begin < views.size(); begin += kLanes) {
          const size_t count = std::min(kLanes, views.size() - begin);
          add(run_lanes(factor, {views.data() + begin, count}, options), begin, count);
        }
      }
    } catch (const std::invalid_argument&) {
      plan_.rethrow(op_, *plan_.form(group), piece.examples);
    }
  }

  const char* op_;
  Plan plan_;
  std::vector<std::shared_ptr<const Factor>> factors_;
  std::shared_ptr<Frames> frames_;
  std::vector<Piece> pieces_;
  std::vector<double> scores_;
  std::vector<bool> is_fused_;
};

/// Differentiates the gradients of a batch: its outputs are gradients of factors, its inputs are
/// the factors (graphs, then emissions) and one delta per example.
class GradientsRule final : public Rule {
 public:
  GradientsRule(std::shared_ptr<const Batch> batch, std::vector<double> deltas,
                std::vector<size_t> outputs)
      : batch_(std::move(batch)), deltas_(std::move(deltas)), outputs_(std::move(outputs)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    const Plan& plan = batch_->plan();
    const size_t num_graphs = plan.graphs.size(), num_factors = num_graphs + plan.emissions.size();
    std::vector<Weights> moves(num_factors);
    for (size_t k = 0; k < outputs_.size(); ++k) moves[outputs_[k]] = deltas[k];
    std::vector<double> slopes(plan.examples.size());
    const std::span<const Weights> all(moves);
    batch_->add_hvps(deltas_, all.first(num_graphs), all.subspan(num_graphs),
                     grads.first(num_graphs), grads.subspan(num_graphs, plan.emissions.size()),
                     slopes);
    for (size_t i = 0; i < slopes.size(); ++i)
      if (Weights* grad = grads[num_factors + i])
        ArcMap::identity().apply(Weights::scalar(slopes[i]), *grad, 1.0);
  }

 private:
  std::shared_ptr<const Batch> batch_;
  std::vector<double> deltas_;
  std::vector<size_t> outputs_;  // which factor each output belongs to
};

/// The gradients of the factors for which `wanted` holds, on the tape. `deltas` has one scalar
/// graph per example, or none where nothing flows.
std::vector<Graph> record_gradients(const char* op, const std::shared_ptr<const Batch>& batch,
                                    std::span<const Graph> deltas,
                                    const std::vector<bool>& wanted) {
  const Plan& plan = batch->plan();
  const size_t num_graphs = plan.graphs.size(), num_factors = num_graphs + plan.emissions.size();
  std::vector<Graph> inputs(plan.graphs);
  inputs.insert(inputs.end(), plan.emissions.begin(), plan.emissions.end());
  std::vector<Weights> grads(num_factors);
  std::vector<Weights*> to(num_factors);
  for (size_t f = 0; f < num_factors; ++f) {
    if (!wanted[f]) continue;
    grads[f] = Weights::zeros(inputs[f].num_arcs(), inputs[f].dtype());
    to[f] = &grads[f];
  }
  std::vector<double> scale;
  for (const Graph& delta : deltas) {
    scale.push_back(delta ? delta.item() : 0.0);
    inputs.push_back(delta ? delta : scalar_graph(0.0, false));
  }
  const std::span<Weights* const> all(to);
  const Batch::Flow flow{batch.get(), scale, all.first(num_graphs), all.subspan(num_graphs)};
  Batch::add_gradients({&flow, 1});
  std::vector<Graph> out(num_factors, nullptr), outputs;
  std::vector<size_t> factors;
  for (size_t f = 0; f < num_factors; ++f) {
    if (!wanted[f]) continue;
    out[f] = Graph(inputs[f].topology_ptr(), std::move(grads[f]));
    outputs.push_back(out[f]);
    factors.push_back(f);
  }
  if (!outputs.empty() && tracks(inputs))
    record_entry(op, outputs, inputs, 0,
                 std::make_unique<GradientsRule>(batch, std::move(scale), std::move(factors)));
  return out;
}

/// Inputs: the products (optional), then the graphs, then the emissions.
class ForwardRule final : public Rule {
 public:
  explicit ForwardRule(std::shared_ptr<const Batch> batch) : batch_(std::move(batch)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    const Call call{this, deltas, grads};
    add_together({&call, 1});
  }

  /// Scores of a loop are differentiated as those of a list are, on all threads. Gradients that
  /// several of them share would need a buffer for each, so these come one after the other.
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
      const auto is_used = [&](const Weights* grad) { return grad && used.contains(grad); };
      if (arcs > kMostArcs || std::ranges::any_of(flow.emission_grads, is_used)) finish();
      for (const Weights* grad : flow.emission_grads) used.add(grad);
      const Plan& plan = flow.batch->plan();
      for (size_t g = 0; g < plan.graphs.size(); ++g)
        if (flow.graph_grads[g]) arcs += plan.graphs[g].num_arcs();
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
  /// What flows into factors; what is wanted of the products themselves is added to them.
  Batch::Flow flow(const Call& call) const {
    const Plan& plan = batch_->plan();
    const size_t count = plan.examples.size();
    std::vector<double> scale(count);
    for (size_t i = 0; i < count; ++i) {
      scale[i] = call.deltas[i] ? call.deltas[i][0] : 0.0;
      if (!call.grads[i]) continue;
      if (scale[i] != 0.0) {
        const LogPartition total(op, plan.examples[i].product, true);
        total.add_posteriors(scale[i], *call.grads[i]);
      }
      scale[i] = 0.0;
    }
    return {batch_.get(), std::move(scale), call.grads.subspan(count, plan.graphs.size()),
            call.grads.subspan(count + plan.graphs.size())};
  }

  std::shared_ptr<const Batch> batch_;
};

/// Losses: minus the score of each example, plus that of its frames if the batch has them. Inputs:
/// the graphs, then the emissions.
class LossRule final : public Rule {
 public:
  explicit LossRule(std::shared_ptr<const Batch> batch) : batch_(std::move(batch)) {}

  bool is_parallel() const override { return true; }
  int32_t least_level() const override { return batch_->frames() ? kFillsRows : 0; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    const size_t num_graphs = batch_->plan().graphs.size();
    std::vector<double> of_paths, of_frames;
    for (const Weights& delta : deltas) {
      of_paths.push_back(delta ? -delta[0] : 0.0);
      if (batch_->frames()) of_frames.push_back(-of_paths.back());
    }
    const Batch::Flow flow{batch_.get(), std::move(of_paths), grads.first(num_graphs),
                           grads.subspan(num_graphs), std::move(of_frames)};
    Batch::add_gradients({&flow, 1});
  }

  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    std::vector<Graph> of_paths;
    for (const Graph& delta : deltas) of_paths.push_back(delta ? negate(delta) : delta);
    std::vector<Graph> grads = record_gradients(op, batch_, of_paths, wanted);
    if (!batch_->frames()) return grads;
    const size_t num_graphs = batch_->plan().graphs.size();
    const std::vector<bool> emissions(wanted.begin() + static_cast<std::ptrdiff_t>(num_graphs),
                                      wanted.end());
    const std::vector<Graph> more = record_gradients(op, batch_->frames(), deltas, emissions);
    for (size_t e = 0; e < more.size(); ++e) {
      Graph& grad = grads[num_graphs + e];
      if (more[e]) grad = grad ? arcgrad::add(grad, more[e]) : more[e];
    }
    return grads;
  }

 private:
  std::shared_ptr<const Batch> batch_;
};

}  // namespace

std::vector<Graph> forward_scores(const char* op, const std::vector<Graph>& graphs) {
  std::vector<Graph> out(graphs.size(), nullptr);
  std::vector<size_t> others, linear;
  bool keep = false, any = false;
  for (size_t i = 0; i < graphs.size(); ++i) {
    if (!graphs[i].product()) {
      (graphs[i].topology().dense() ? linear : others).push_back(i);
      continue;
    }
    any = true;
    keep |= tracks(graphs[i]);
  }
  if (any) {
    auto batch = std::make_shared<const Batch>(op, Plan(graphs), keep);
    const Plan& plan = batch->plan();
    std::vector<Graph> outputs;
    for (size_t k = 0; k < plan.examples.size(); ++k) {
      outputs.emplace_back(scalar_topology(), Weights::scalar(batch->score(k)));
      if (batch->is_fused(k))
        out[plan.examples[k].position] = outputs.back();
      else  // nothing will flow through this output
        others.push_back(plan.examples[k].position);
    }
    if (keep) {
      record_entry(op, outputs, plan.tape_inputs(), plan.examples.size(),
                   std::make_unique<ForwardRule>(std::move(batch)));
    }
  }
  if (!linear.empty()) score_frames(op, graphs, linear, out);
  for_others(op, graphs.size(), others,
             [&](size_t i) { out[i] = forward_score_of_arcs(op, graphs[i]); });
  return out;
}

std::vector<Graph> sequence_losses(const std::vector<Graph>& graphs,
                                   const std::vector<Graph>& emissions, bool normalized) {
  const char* op = "forward_score";
  const size_t count = batch_size("intersect", graphs.size(), emissions.size());
  const auto is_acceptor = [](const Graph& g) {
    return !g.product() && !g.topology().dense() && g.topology().is_acceptor();
  };
  const auto is_dense = [](const Graph& g) {
    return !g.product() && g.topology().dense().has_value();
  };
  const auto by_ops = [&] {
    const std::vector<Graph> scores =
        forward_scores(op, map2("intersect", intersect, graphs, emissions));
    return normalized ? map2("subtract", subtract, forward_scores(op, emissions), scores)
                      : map("negate", negate, scores);
  };
  if (count != emissions.size() || !std::ranges::all_of(graphs, is_acceptor) ||
      !std::ranges::all_of(emissions, is_dense))
    return by_ops();
  Plan plan(graphs, emissions);
  // Threads would meet in the frames of emissions that examples share.
  if (normalized && plan.emissions.size() < count) return by_ops();

  const bool keep = tracks(plan.graphs) || tracks(plan.emissions);
  const auto frames = normalized ? std::make_shared<Frames>(op, plan.emissions) : nullptr;
  const auto batch = std::make_shared<const Batch>(op, std::move(plan), keep, frames);
  std::vector<Graph> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (!batch->is_fused(i)) return by_ops();
    const double normalizer = normalized ? frames->score(i) : 0.0;
    out.emplace_back(scalar_topology(), Weights::scalar(normalizer - batch->score(i)));
  }
  if (!keep) return out;
  std::vector<Graph> inputs(batch->plan().graphs);
  const std::vector<Graph>& matched = batch->plan().emissions;
  inputs.insert(inputs.end(), matched.begin(), matched.end());
  record_entry(op, out, inputs, 0, std::make_unique<LossRule>(batch));
  return out;
}

Graph factor_posteriors(const char* op, const Graph& graph, const Graph& factor) {
  const bool is_graph = is_graph_factor(op, graph, factor);
  auto batch = std::make_shared<const Batch>(op, Plan({graph}), true);
  const Graph one = scalar_graph(1.0, false);
  if (batch->is_fused(0))
    return record_gradients(op, batch, {&one, 1}, {is_graph, !is_graph})[is_graph ? 0 : 1];
  const Graph posteriors = record_posteriors(
      op, graph, std::make_shared<const LogPartition>(op, graph, true), one, graph.dtype());
  const Product& product = *graph.product();
  const size_t which = is_graph == (product.side() == Side::output) ? 0 : 1;
  return product.built().rule->record({&posteriors, 1}, {which == 0, which == 1})[which];
}

std::vector<double> frame_scores(const Graph& product) {
  return Batch("frame_scores", Plan({product}), true).frame_scores(0);
}

}  // namespace arcgrad::trellis
