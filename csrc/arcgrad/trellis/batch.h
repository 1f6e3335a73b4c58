#pragma once

// Runs a planned batch of products forward, and computes gradients and Hessian-vector products of
// the scores.

#include <memory>
#include <span>
#include <vector>

#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/trellis/kernels/frames.h"
#include "arcgrad/trellis/plan.h"

namespace arcgrad::trellis {

/// The forward scores of the products of a plan, with the forward values that gradients need.
///
/// The examples of each group of the plan are cut into chunks that one call of a kernel runs side
/// by side. Chunks run in parallel. A kernel may return null for a chunk; then `lanes` runs it.
class Batch {
 public:
  /// Computes the scores. With `keep`, gradients can be computed later. With `frames`, also
  /// computes the score of the emissions of each example alone, while they are in the cache.
  Batch(const char* op, Plan plan, bool keep, std::shared_ptr<Frames> frames = nullptr);

  const Plan& plan() const { return plan_; }
  /// False if the product of example i must be materialised; it then has no score here.
  bool is_fused(size_t i) const { return is_fused_[i]; }
  double score(size_t i) const { return scores_[i]; }
  const std::shared_ptr<Frames>& frames() const { return frames_; }

  /// The log of the sum of the posteriors of each frame of example i, before normalization.
  std::vector<double> frame_scores(size_t i) const;

  /// The gradients (deltas) of the scores of a batch, and the destinations for its factors.
  /// add_gradients() adds `deltas[i]` times the posteriors of example i and, unless `frame_deltas`
  /// is empty, `frame_deltas[i]` times the posteriors of its emissions alone. A null destination is
  /// not wanted.
  struct Flow {
    const Batch* batch;
    std::vector<double> deltas;
    std::span<Gradient* const> graph_grads, emission_grads;
    std::vector<double> frame_deltas = {};
  };
  /// Adds the gradients of several batches; all chunks run in parallel.
  static void add_gradients(std::span<const Flow> flows);

  /// Adds `deltas[i]` times the derivatives of the posteriors of example i along the tangents of
  /// its factors. Sets `jvps[i]` to the derivative of its score along them.
  void add_hvps(std::span<const double> deltas, std::span<const Weights> graph_tangents,
                std::span<const Weights> emission_tangents, std::span<Gradient* const> graph_grads,
                std::span<Gradient* const> emission_grads, std::span<double> jvps) const;

 private:
  /// A kernel's run over some examples of a chunk.
  struct PartialRun {
    std::unique_ptr<Run> run;
    size_t begin, count;  // of the examples of the chunk
  };
  /// Examples of one group that run together.
  struct Chunk {
    size_t group;
    const KernelEntry* kernel;
    std::span<const size_t> examples;
    std::vector<PartialRun> runs;
    bool divides_frames = false;  // whether its run uses several threads
  };
  /// A chunk of one of several batches whose gradients are added.
  struct GradientJob {
    const Flow& flow;
    const Chunk& chunk;
    size_t first;  // index of the batch's first example among the examples of all batches
  };

  static Buffer<double> run_gradient_job(const GradientJob& job, const EmissionsGrads& to);
  void run_chunk(Chunk& chunk, bool keep);
  void sum_frames(const Chunk& chunk) const;
  void list_destinations(std::span<Gradient* const> grads, std::vector<Gradient*>& of_examples,
                         std::vector<int32_t>& labels) const;
  void clear_unused(const EmissionsGrads& to, size_t first) const;
  void sum_arcs(std::span<Buffer<double>> arcs, std::span<Gradient* const> grads) const;

  const char* op_;
  Plan plan_;
  std::vector<std::shared_ptr<const Factor>> factors_;  // of each group
  std::shared_ptr<Frames> frames_;
  std::vector<Chunk> chunks_;
  std::vector<double> scores_;
  std::vector<bool> is_fused_;
};

/// Computes the gradients of the factors for which `wanted` holds, as graphs that can be
/// differentiated again. `deltas` has one scalar graph per example, null for no gradient.
std::vector<Graph> record_gradients(const char* op, const std::shared_ptr<const Batch>& batch,
                                    std::span<const Graph> deltas, const std::vector<bool>& wanted);

}  // namespace arcgrad::trellis
