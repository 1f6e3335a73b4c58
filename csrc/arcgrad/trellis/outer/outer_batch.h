#pragma once

// The computations of an outer score: scores, gradients and Hessian-vector products.

#include <span>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/trellis/best/alignment.h"
#include "arcgrad/trellis/emissions.h"
#include "arcgrad/trellis/outer/outer_graph.h"
#include "arcgrad/trellis/outer/window_shape.h"

namespace arcgrad::trellis {

/// All graphs against all windows of all emissions.
///
/// The scores are a matrix: a row per window, a column per graph. Examples run in parallel, or the
/// windows of few examples. Windows of few frames run 8 side by side against one graph after the
/// other (WindowScorer), so that their emissions are read once for all graphs. Longer windows, and
/// whole examples, run 8 side by side in the `lanes` kernel. For the tropical semiring, windows run
/// through find_best().
///
/// Only the inputs are kept for gradients: add_gradients() runs the windows forward again. The
/// gradient of a graph is computed per example and summed in the order of the list, so results do
/// not depend on the threads. Time O(windows * frames of a window * arcs).
class OuterBatch {
 public:
  OuterBatch(const char* op, const std::vector<Graph>& graph_list,
             const std::vector<Graph>& emission_list, WindowShape window, Semiring semiring);

  std::vector<Graph> graphs, emissions;
  int32_t num_rows() const { return static_cast<int32_t>(num_rows_); }

  Weights scores() const;
  /// Adds `deltas`, one per score, times the posteriors to the gradients of the factors.
  void add_gradients(const Weights& deltas, std::span<Gradient* const> grads) const;
  /// Adds the derivatives of these gradients along `tangents`, one per factor, to `grads`, and the
  /// derivatives of the scores to `jvps`.
  void add_hvps(const Weights& deltas, std::span<const Weights> tangents,
                std::span<Gradient* const> grads, Gradient* jvps) const;

 private:
  /// A window of an example.
  struct WindowRow {
    size_t example;
    int32_t window;
  };
  /// Short windows that run side by side.
  struct WindowChunk {
    size_t example;
    int32_t first, count;  // windows
  };
  /// Gradients of arcs: one array per example and graph, empty if not wanted.
  using ArcGrads = std::vector<std::vector<double>>;

  int64_t num_columns() const { return static_cast<int64_t>(graphs.size()); }
  int32_t num_windows(size_t e) const { return window_.count(views_[e].frames); }
  Emissions window(size_t e, int32_t w) const;
  int64_t cell(size_t e, int32_t row, size_t k) const {
    return (first_row_[e] + row) * num_columns() + static_cast<int64_t>(k);
  }
  /// Whether windows are short enough for WindowScorer.
  bool is_short() const {
    constexpr int32_t kShort = 32;
    return window_.size >= 1 && window_.size <= kShort;
  }
  /// Whether the examples occupy all threads. It does not depend on the number of threads, because
  /// the order of sums over windows depends on it.
  bool has_many_examples() const {
    constexpr size_t kMany = 8;
    return emissions.size() >= kMany;
  }
  template <class T>
  void prepare(OuterGraph<T>& graph, std::shared_ptr<const Factor> factor) const;
  template <class T>
  const std::vector<OuterGraph<T>>& prepared() const {
    if constexpr (sizeof(T) == 8)
      return doubles_;
    else
      return floats_;
  }
  const Factor& factor(size_t k) const {
    return is_double_ ? *doubles_[k].factor : *floats_[k].factor;
  }

  EmissionsGrads destinations(std::span<Gradient* const> grads) const;
  void sum_arcs(const ArcGrads& arcs, std::span<Gradient* const> grads) const;

  template <class T>
  void score(double* to) const;
  template <class T>
  void differentiate(const double* delta, const EmissionsGrads& to, ArcGrads& arcs) const;
  /// Adds the posteriors of the out-terms of graph k to the gradient of its arcs.
  template <class T>
  void sum_terms(size_t k, const TermPosteriors<T>& terms, std::span<double> arcs) const;

  void score_best(double* to) const;
  /// Adds delta to every arc of the best paths.
  void add_best(const double* delta, const EmissionsGrads& to, ArcGrads& arcs) const;
  /// Adds to each derivative of a score the sum of the tangents along the best path.
  void add_best_jvps(std::span<const Weights> tangents, double* jvps) const;

  /// Calls f(run, graph, rows, their emissions) for rows that run side by side: windows of one
  /// example, or whole examples.
  template <class T, class F>
  void for_each_run(F f) const;
  /// Calls f(example) in parallel. An error names the example and its frame.
  template <class F>
  void for_each_example(F f) const;
  /// The chunks of the examples from `begin` to `end`.
  std::vector<WindowChunk> chunks(size_t begin, size_t end) const;
  /// Calls f(chunk, its position in the list) in parallel. An error names the example and its
  /// frame.
  template <class F>
  void for_each_chunk(std::span<const WindowChunk> chunks, F f) const;
  /// Calls f(example, window, graph, best path) for all of them, examples in parallel.
  template <class F>
  void for_each_best(bool with_paths, F f) const;
  /// Calls f(arc, arc of the emissions or -1) for each step of a best path.
  template <class F>
  void for_each_step(size_t e, int32_t w, size_t k, const BestAlignment& best, F f) const;
  /// Rethrows the current exception, which names a frame of a window, with the frame of the
  /// example.
  [[noreturn]] void rethrow_for_example(size_t begin, size_t end) const;

  const char* op_;
  WindowShape window_;
  Semiring semiring_;
  std::vector<Emissions> views_;
  std::vector<int64_t> first_row_;
  int64_t num_rows_ = 0;
  bool is_double_ = false;
  std::vector<OuterGraph<float>> floats_;
  std::vector<OuterGraph<double>> doubles_;
};

}  // namespace arcgrad::trellis
