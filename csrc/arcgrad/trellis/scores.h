#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad::trellis {

enum class Kernel : uint8_t { diagonal, lanes, dense, csr, frames, materialised };
const char* name(Kernel kernel);

/// How the score of a graph is computed, and why so.
struct Choice {
  Kernel kernel = Kernel::materialised;
  std::string reason;
};
/// The choice for each graph of a list that is scored together.
std::vector<Choice> explain(const std::vector<Graph>& graphs);

/// Forward scores of a list of graphs, the products among them as one batch and one tape entry.
std::vector<Graph> forward_scores(const char* op, const std::vector<Graph>& graphs);
/// For each example minus the forward score of intersect(graph, emissions), plus that of the
/// emissions if it is to be `normalized`.
std::vector<Graph> sequence_losses(const std::vector<Graph>& graphs,
                                   const std::vector<Graph>& emissions, bool normalized);
/// Best scores and best paths of a list of graphs.
std::vector<Graph> best_scores(const char* op, const std::vector<Graph>& graphs);
std::vector<Graph> viterbi_paths(const char* op, const std::vector<Graph>& graphs);
/// The posteriors of a factor of a product, and how often the best path uses its arcs.
Graph factor_posteriors(const char* op, const Graph& product, const Graph& factor);
Graph factor_counts(const char* op, const Graph& product, const Graph& factor);

/// The scores of all graphs and all windows of emissions: one row per window, one column per graph.
/// Without a window each example is one.
struct Window {
  int32_t size = 0;      // in frames; 0 for all of them
  int32_t stride = 1;    // from one window to the next
  int32_t dilation = 1;  // from one frame of a window to the next
};
Graph outer_scores(const char* op, const std::vector<Graph>& graphs,
                   const std::vector<Graph>& emissions, Window window, Semiring semiring);

/// The size in bytes of the values kept for gradients from which on only some are, and the rest
/// computed again.
void set_history_limit(int64_t bytes);
int64_t get_history_limit();

// For tests.
/// Uses this kernel for every product, or fails where it cannot; an empty name for the usual
/// choice.
void force_kernel(const std::string& name);
/// Keeps every so many frames; 0 for the usual choice.
void force_history_stride(int32_t stride);
/// The log of the summed posteriors of each frame before they are normalized.
std::vector<double> frame_scores(const Graph& product);

}  // namespace arcgrad::trellis
