#include <algorithm>

#include "arcgrad/error.h"
#include "arcgrad/parallel.h"
#include "arcgrad/trellis/curvature.h"
#include "arcgrad/trellis/lanes.h"
#include "arcgrad/trellis/plan.h"

namespace arcgrad::trellis {
namespace {

/// Frames [begin, begin + size) of an example.
Emissions slice(const Emissions& view, int32_t begin, int32_t size) {
  Emissions out = view;
  const int64_t offset = begin * view.row_stride;
  out.data = dispatch(view.dtype, [&](auto kind) -> const void* {
    return static_cast<const decltype(kind)*>(view.data) + offset;
  });
  out.frames = size;
  return out;
}

EmissionsGrad slice(const EmissionsGrad& grad, int32_t begin) {
  if (!grad.data) return grad;
  const int64_t offset = int64_t{begin} * grad.labels;
  EmissionsGrad out = grad;
  out.data = dispatch(grad.dtype, [&](auto kind) -> void* {
    return static_cast<decltype(kind)*>(grad.data) + offset;
  });
  return out;
}

/// All graphs against all windows. Nothing is kept for gradients but the inputs: windows are short,
/// and running them again costs less than remembering.
class Outer {
 public:
  Outer(const char* op, const std::vector<Graph>& graph_list,
        const std::vector<Graph>& emission_list, Window window)
      : op_(op), window_(window) {
    DType dtype = DType::float32;
    for (const Graph& graph : graph_list) {
      graphs.push_back(graph.snapshot());
      dtype = promote(dtype, graph.dtype());
    }
    for (size_t e = 0; e < emission_list.size(); ++e) {
      const Graph& graph = emission_list[e];
      if (graph.product() || !graph.topology().dense())
        fail(op, "the emissions must be dense linear graphs, but element ", e, " is none");
      emissions.push_back(graph.snapshot());
      views_.push_back(view_emissions(emissions.back()));
      dtype = promote(dtype, graph.dtype());
      first_row_.push_back(num_rows_);
      num_rows_ += num_windows(views_.back());
    }
    require_size(op, "rows", num_rows_);
    is_double_ = dtype == DType::float64;
    factors_.resize(graphs.size());
    floats_.resize(graphs.size());
    doubles_.resize(graphs.size());
    parallel_for(graphs.size(), [&](size_t k) {
      try {
        const auto& form = graphs[k].topology().form(Side::output);
        require(!form->has_epsilon_cycle, op_, "epsilon arcs of the graph form a cycle");
        factors_[k] = std::make_shared<const Factor>(op_, form, graphs[k].raw_weights());
        if (is_double_)
          doubles_[k] = std::make_shared<const RowWeights<double>>(*factors_[k]);
        else
          floats_[k] = std::make_shared<const RowWeights<float>>(*factors_[k]);
      } catch (...) {
        rethrow_for_element(op_, k, graphs.size());
      }
    });
  }

  std::vector<Graph> graphs, emissions;
  int32_t num_rows() const { return static_cast<int32_t>(num_rows_); }

  Weights scores() const {
    Weights out =
        Weights::uninitialized(num_rows_ * static_cast<int64_t>(graphs.size()), DType::float64);
    double* const to = out.fill<double>().data();
    for_each_run([&](auto& run, size_t e, size_t k, int32_t first,
                     std::span<const Emissions> views) {
      run.forward(views, {op_, false, 1});
      for (size_t i = 0; i < views.size(); ++i)
        to[(first_row_[e] + first + static_cast<int64_t>(i)) * num_columns() + k] = run.scores[i];
    });
    return out;
  }

  void add_gradients(const Weights& deltas, std::span<Weights* const> grads) const {
    const EmissionsGrads to = destinations(grads);
    const double* const delta = deltas.view<double>().data();
    std::vector<std::vector<double>> arcs(emissions.size() * graphs.size());
    for_each_run(
        [&](auto& run, size_t e, size_t k, int32_t first, std::span<const Emissions> views) {
          std::vector<double>& arc = arcs[e * graphs.size() + k];
          if (grads[k] && arc.empty()) arc.resize(static_cast<size_t>(graphs[k].num_arcs()));
          double scale[kLanes];
          EmissionsGrad windows[kLanes];
          for (size_t i = 0; i < views.size(); ++i) {
            const int32_t row = first + static_cast<int32_t>(i);
            scale[i] = delta[(first_row_[e] + row) * num_columns() + k];
            windows[i] = slice(to.at(e), row * window_.stride);
          }
          run.forward(views, {op_, true, 1});
          run.add_gradients({scale, views.size()}, {windows, views.size()}, arc);
        });
    to.join();
    sum_arcs(arcs, grads);
  }

  /// The derivative of the gradients along `moves`, one per factor; the derivatives of the scores
  /// are added to `slopes`.
  void add_curvatures(const Weights& deltas, std::span<const Weights> moves,
                      std::span<Weights* const> grads, Weights* slopes) const {
    const EmissionsGrads to = destinations(grads);
    const double* const delta = deltas.view<double>().data();
    double* const slope = slopes ? slopes->fill<double>().data() : nullptr;
    std::vector<std::vector<double>> arcs(emissions.size() * graphs.size()), arc_moves;
    for (size_t k = 0; k < graphs.size(); ++k)
      arc_moves.push_back(moves[k] ? moves[k].to_vector() : std::vector<double>());
    parallel_for(emissions.size(), [&](size_t e) {
      for (size_t k = 0; k < graphs.size(); ++k) {
        std::vector<double>& arc = arcs[e * graphs.size() + k];
        if (grads[k]) arc.resize(static_cast<size_t>(graphs[k].num_arcs()));
        for (int32_t w = 0; w < num_windows(views_[e]); ++w) {
          const int32_t begin = w * window_.stride;
          const Emissions view = slice(views_[e], begin, window_size(views_[e]));
          const Weights& all = moves[graphs.size() + e];
          Weights own;
          if (all) {
            own = Weights::uninitialized(int64_t{view.frames} * view.labels, DType::float64);
            for (int64_t i = 0; i < own.size(); ++i)
              own.fill<double>()[static_cast<size_t>(i)] = all[int64_t{begin} * view.labels + i];
          }
          const Direction direction{all ? &own : nullptr, arc_moves[k]};
          const int64_t at = (first_row_[e] + w) * num_columns() + static_cast<int64_t>(k);
          const double moved = add_curvature(op_, *factors_[k], view, direction, delta[at],
                                             slice(to.at(e), begin), arc);
          if (slope) slope[at] += moved;
        }
      }
    });
    to.join();
    sum_arcs(arcs, grads);
  }

 private:
  int64_t num_columns() const { return static_cast<int64_t>(graphs.size()); }
  int32_t window_size(const Emissions& view) const {
    return window_.size == 0 ? view.frames : window_.size;
  }
  int32_t num_windows(const Emissions& view) const {
    if (window_.size == 0) return 1;
    return view.frames < window_.size ? 0 : (view.frames - window_.size) / window_.stride + 1;
  }

  EmissionsGrads destinations(std::span<Weights* const> grads) const {
    std::vector<int32_t> labels;
    for (const Emissions& view : views_) labels.push_back(view.labels);
    const auto of_emissions = grads.subspan(graphs.size(), emissions.size());
    return {{of_emissions.begin(), of_emissions.end()}, std::move(labels)};
  }

  void sum_arcs(std::vector<std::vector<double>>& arcs, std::span<Weights* const> grads) const {
    for (size_t k = 0; k < graphs.size(); ++k) {
      if (!grads[k]) continue;
      std::vector<double> sum(static_cast<size_t>(graphs[k].num_arcs()));
      for (size_t e = 0; e < emissions.size(); ++e) {
        const std::vector<double>& part = arcs[e * graphs.size() + k];
        for (size_t a = 0; a < part.size(); ++a) sum[a] += part[a];
      }
      ArcMap::identity().apply(Weights::from(sum), *grads[k], 1.0);
    }
  }

  /// Calls f(run, example, graph, first window, windows) for windows that go side by side. One
  /// example is the work of one thread.
  template <class F>
  void for_each_run(F f) const {
    parallel_for(emissions.size(), [&](size_t e) {
      try {
        for (size_t k = 0; k < graphs.size(); ++k) {
          if (is_double_) {
            RowsRun<double, kLanes> run(factors_[k], doubles_[k]);
            for_each_chunk(e, [&](auto... chunk) { f(run, e, k, chunk...); });
          } else {
            RowsRun<float, kLanes> run(factors_[k], floats_[k]);
            for_each_chunk(e, [&](auto... chunk) { f(run, e, k, chunk...); });
          }
        }
      } catch (const std::invalid_argument&) {
        rethrow_for_example(e);
      }
    });
  }
  /// Throws the current exception again, with the frame of the example instead of that of a window.
  [[noreturn]] void rethrow_for_example(size_t e) const {
    try {
      for (const auto& factor : factors_)
        for (int32_t t = 0; t < views_[e].frames; ++t)
          check_emissions(op_, *factor->form, views_[e], t);
      throw;
    } catch (const std::invalid_argument&) {
      if (emissions.size() == 1) throw;
      rethrow_for_element(op_, e, emissions.size());
    }
  }
  template <class F>
  void for_each_chunk(size_t e, F f) const {
    const int32_t count = num_windows(views_[e]);
    Emissions windows[kLanes];
    for (int32_t first = 0; first < count; first += kLanes) {
      const int32_t size = std::min<int32_t>(kLanes, count - first);
      for (int32_t i = 0; i < size; ++i)
        windows[i] = slice(views_[e], (first + i) * window_.stride, window_size(views_[e]));
      f(first, std::span<const Emissions>(windows, static_cast<size_t>(size)));
    }
  }

  const char* op_;
  Window window_;
  std::vector<Emissions> views_;
  std::vector<int64_t> first_row_;
  int64_t num_rows_ = 0;
  bool is_double_ = false;
  std::vector<std::shared_ptr<const Factor>> factors_;
  std::vector<std::shared_ptr<const RowWeights<float>>> floats_;
  std::vector<std::shared_ptr<const RowWeights<double>>> doubles_;
};

/// Differentiates the gradients below. Inputs: the graphs, the emissions, the delta.
class OuterGradientsRule final : public Rule {
 public:
  OuterGradientsRule(std::shared_ptr<const Outer> outer, Weights delta, std::vector<size_t> outputs)
      : outer_(std::move(outer)), delta_(std::move(delta)), outputs_(std::move(outputs)) {}

  bool is_parallel() const override { return true; }
  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    std::vector<Weights> moves(grads.size() - 1);
    for (size_t k = 0; k < outputs_.size(); ++k) moves[outputs_[k]] = deltas[k];
    outer_->add_curvatures(delta_, moves, grads.first(grads.size() - 1), grads.back());
  }

 private:
  std::shared_ptr<const Outer> outer_;
  Weights delta_;
  std::vector<size_t> outputs_;
};

class OuterRule final : public Rule {
 public:
  explicit OuterRule(std::shared_ptr<const Outer> outer) : outer_(std::move(outer)) {}

  bool is_parallel() const override { return true; }
  void add(std::span<const Weights> deltas, std::span<Weights* const> grads) const override {
    outer_->add_gradients(deltas[0], grads);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    std::vector<Graph> inputs(outer_->graphs), out(wanted.size(), nullptr), outputs;
    inputs.insert(inputs.end(), outer_->emissions.begin(), outer_->emissions.end());
    std::vector<Weights> grads(wanted.size());
    std::vector<Weights*> to(wanted.size());
    for (size_t f = 0; f < wanted.size(); ++f) {
      if (!wanted[f]) continue;
      grads[f] = Weights::zeros(inputs[f].num_arcs(), inputs[f].dtype());
      to[f] = &grads[f];
    }
    const Weights delta = deltas[0].weights().cast(DType::float64);
    outer_->add_gradients(delta, to);
    std::vector<size_t> which;
    for (size_t f = 0; f < wanted.size(); ++f) {
      if (!wanted[f]) continue;
      out[f] = Graph(inputs[f].topology_ptr(), std::move(grads[f]));
      outputs.push_back(out[f]);
      which.push_back(f);
    }
    inputs.push_back(deltas[0]);
    if (!outputs.empty() && tracks(inputs))
      record_entry(op, outputs, inputs, 0,
                   std::make_unique<OuterGradientsRule>(outer_, delta, std::move(which)));
    return out;
  }

 private:
  std::shared_ptr<const Outer> outer_;
};

}  // namespace

Graph outer_scores(const char* op, const std::vector<Graph>& graphs,
                   const std::vector<Graph>& emissions, Window window) {
  require(window.size >= 0, op, "the window must be 1 frame or more, but it is ", window.size);
  require(window.stride >= 1, op, "the stride must be 1 frame or more, but it is ", window.stride);
  auto outer = std::make_shared<const Outer>(op, graphs, emissions, window);
  require_size(op, "scores", int64_t{outer->num_rows()} * static_cast<int64_t>(graphs.size()));
  Graph out(std::make_shared<Topology>(outer->num_rows(), static_cast<int32_t>(graphs.size())),
            outer->scores());
  std::vector<Graph> inputs(outer->graphs);
  inputs.insert(inputs.end(), outer->emissions.begin(), outer->emissions.end());
  if (tracks(inputs))
    record_entry(op, {&out, 1}, inputs, 0, std::make_unique<OuterRule>(std::move(outer)));
  return out;
}

}  // namespace arcgrad::trellis
