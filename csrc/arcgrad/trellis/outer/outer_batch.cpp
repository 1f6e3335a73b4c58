// Runs all windows of all emissions against all graphs; outer_batch.h explains how.

#include "arcgrad/trellis/outer/outer_batch.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>

#include "arcgrad/algorithms/resolve_failures.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/best/best.h"
#include "arcgrad/trellis/hvp/hvp.h"
#include "arcgrad/trellis/kernels/lanes.h"
#include "arcgrad/trellis/outer/windows.h"

namespace arcgrad::trellis {
namespace {

/// The gradient of a window. Windows overlap, so the rows must be initialized already.
EmissionsGrad slice(const EmissionsGrad& grad, int32_t begin, int32_t dilation) {
  if (!grad.data) return grad;
  EmissionsGrad out = grad;
  out.is_unset = false;
  out.data =
      dispatch(grad.dtype, [&](auto kind) -> void* { return grad.row<decltype(kind)>(begin); });
  out.row_stride *= dilation;
  return out;
}

std::vector<double> to_doubles(const Weights& tangent) {
  return tangent ? tangent.to_vector() : std::vector<double>();
}

}  // namespace

OuterBatch::OuterBatch(const char* op, const std::vector<Graph>& graph_list,
                       const std::vector<Graph>& emission_list, WindowShape window,
                       Semiring semiring)
    : op_(op), window_(window), semiring_(semiring) {
  DType dtype = DType::float32;
  int32_t labels = 0;
  for (size_t e = 0; e < emission_list.size(); ++e) {
    const Graph& graph = emission_list[e];
    if (!is_emissions(graph))
      fail(op, "the emissions must be dense linear graphs, but element ", e, " is not one");
    emissions.push_back(graph.snapshot());
    views_.push_back(view_emissions(emissions.back()));
    dtype = promote(dtype, graph.dtype());
    labels = std::max(labels, views_.back().labels);
    first_row_.push_back(num_rows_);
    num_rows_ += num_windows(e);
  }
  require_size(op, "rows", num_rows_);
  for (const Graph& graph : graph_list) {
    graphs.push_back(resolve_failures(op, graph, Side::output, labels).graph.snapshot());
    dtype = promote(dtype, graph.dtype());
  }
  is_double_ = dtype == DType::float64;
  if (is_double_)
    doubles_ = std::vector<OuterGraph<double>>(graphs.size());
  else
    floats_ = std::vector<OuterGraph<float>>(graphs.size());
  parallel_for(graphs.size(), [&](size_t k) {
    try {
      const auto& arranged = trellis_graph(graphs[k].topology(), Side::output);
      require(!arranged->has_epsilon_cycle, op_,
              "epsilon arcs of a graph must not form a cycle, but those of this graph do");
      auto factor = std::make_shared<const Factor>(op_, arranged, graphs[k].raw_weights());
      if (is_double_)
        prepare(doubles_[k], std::move(factor));
      else
        prepare(floats_[k], std::move(factor));
    } catch (...) {
      rethrow_for_element(op_, k, graphs.size());
    }
  });
}

template <class T>
void OuterBatch::prepare(OuterGraph<T>& graph, std::shared_ptr<const Factor> factor) const {
  const TrellisGraph& arranged = *factor->trellis_graph;
  graph.label.reserve(arranged.slot.size());
  for (int32_t slot : arranged.slot) graph.label.push_back(arranged.labels[slot]);
  graph.factor = std::move(factor);
  if (is_short() && semiring_ == Semiring::log) graph.make_plain(window_.size);
}

Emissions OuterBatch::window(size_t e, int32_t w) const {
  const Emissions& view = views_[e];
  Emissions out = view;
  const int64_t offset = w * window_.stride * view.row_stride;
  out.data = dispatch(view.dtype, [&](auto kind) -> const void* {
    return static_cast<const decltype(kind)*>(view.data) + offset;
  });
  out.frames = window_.size == 0 ? view.frames : window_.size;
  out.row_stride *= window_.dilation;
  return out;
}

Weights OuterBatch::scores() const {
  Weights out = Weights::uninitialized(num_rows_ * num_columns(), DType::float64);
  double* const to = out.fill<double>().data();
  if (semiring_ == Semiring::tropical)
    score_best(to);
  else if (is_double_)
    score<double>(to);
  else
    score<float>(to);
  return out;
}

template <class T>
void OuterBatch::score(double* to) const {
  if (!is_short()) {
    for_each_run<T>([&](auto& run, size_t k, std::span<const WindowRow> rows,
                        std::span<const Emissions> views) {
      run.forward(views, {op_, false, 1});
      for (size_t i = 0; i < rows.size(); ++i)
        to[cell(rows[i].example, rows[i].window, k)] = run.scores[i];
    });
    return;
  }
  const auto score_chunk = [&](WindowScorer<T>& windows, const WindowChunk& chunk) {
    windows.set_chunk(chunk.first, chunk.count);
    double scores[kLanes];
    for (size_t k = 0; k < graphs.size(); ++k) {
      windows.score(k, scores);
      for (int32_t l = 0; l < chunk.count; ++l)
        to[cell(chunk.example, chunk.first + l, k)] = scores[l];
    }
  };
  if (has_many_examples())
    for_each_example([&](size_t e) {
      WindowScorer<T> windows(op_, prepared<T>(), views_[e], window_);
      for (const WindowChunk& chunk : chunks(e, e + 1)) score_chunk(windows, chunk);
    });
  else
    for_each_chunk(chunks(0, emissions.size()), [&](const WindowChunk& chunk, size_t) {
      WindowScorer<T> windows(op_, prepared<T>(), views_[chunk.example], window_);
      score_chunk(windows, chunk);
    });
}

void OuterBatch::add_gradients(const Weights& deltas, std::span<Gradient* const> grads) const {
  const EmissionsGrads to = destinations(grads);
  for (size_t e = 0; e < emissions.size(); ++e)
    if (const EmissionsGrad grad = to.at(e); grad.is_unset) grad.clear(0, views_[e].frames);
  const double* const delta = deltas.view<double>().data();
  ArcGrads arcs(emissions.size() * graphs.size());
  for (size_t e = 0; e < emissions.size(); ++e)
    for (size_t k = 0; k < graphs.size(); ++k)
      if (grads[k])
        arcs[e * graphs.size() + k].resize(static_cast<size_t>(graphs[k].num_weights()));
  if (semiring_ == Semiring::tropical)
    add_best(delta, to, arcs);
  else if (is_double_)
    differentiate<double>(delta, to, arcs);
  else
    differentiate<float>(delta, to, arcs);
  to.join();
  sum_arcs(arcs, grads);
}

template <class T>
void OuterBatch::differentiate(const double* delta, const EmissionsGrads& to,
                               ArcGrads& arcs) const {
  if (!is_short()) {
    for_each_run<T>([&](auto& run, size_t k, std::span<const WindowRow> rows,
                        std::span<const Emissions> views) {
      double scale[kLanes];
      EmissionsGrad windows[kLanes];
      for (size_t i = 0; i < rows.size(); ++i) {
        scale[i] = delta[cell(rows[i].example, rows[i].window, k)];
        windows[i] =
            slice(to.at(rows[i].example), rows[i].window * window_.stride, window_.dilation);
      }
      run.forward(views, {op_, true, 1});
      run.add_gradients({scale, rows.size()}, {windows, rows.size()},
                        arcs[rows[0].example * graphs.size() + k]);
    });
    return;
  }
  const size_t num_graphs = graphs.size();
  const auto arcs_of = [&](size_t e, size_t k) -> std::vector<double>& {
    return arcs[e * num_graphs + k];
  };
  const auto for_each_graph = [&](const WindowChunk& chunk, const auto& f) {
    double scale[kLanes];
    for (size_t k = 0; k < num_graphs; ++k) {
      for (int32_t l = 0; l < chunk.count; ++l)
        scale[l] = delta[cell(chunk.example, chunk.first + l, k)];
      f(k, scale, !arcs_of(chunk.example, k).empty());
    }
  };
  if (has_many_examples())
    return for_each_example([&](size_t e) {
      WindowScorer<T> windows(op_, prepared<T>(), views_[e], window_);
      std::vector<TermPosteriors<T>> terms(num_graphs);
      for (const WindowChunk& chunk : chunks(e, e + 1)) {
        windows.set_chunk(chunk.first, chunk.count);
        windows.begin_gradients();
        for_each_graph(chunk, [&](size_t k, const double* scale, bool wants_arcs) {
          windows.add(k, scale, wants_arcs ? &terms[k] : nullptr);
        });
        windows.end_gradients(chunk.first, chunk.count, windows.gradients(), to.at(e));
      }
      for (size_t k = 0; k < num_graphs; ++k)
        if (!arcs_of(e, k).empty()) sum_terms(k, terms[k], arcs_of(e, k));
    });
  // Windows of different chunks overlap, so their gradients are added in order afterwards, for a
  // limited number of chunks at a time.
  constexpr size_t kAtOnce = 32;
  std::vector<size_t> first_arc{0};
  for (const Graph& graph : graphs)
    first_arc.push_back(first_arc.back() + static_cast<size_t>(graph.num_weights()));
  const std::vector<WindowChunk> all = chunks(0, emissions.size());
  for (size_t begin = 0; begin < all.size(); begin += kAtOnce) {
    const std::span<const WindowChunk> some(all.data() + begin,
                                            std::min(kAtOnce, all.size() - begin));
    std::vector<std::vector<T>> rows(some.size());
    std::vector<std::vector<double>> parts(some.size());
    for_each_chunk(some, [&](const WindowChunk& chunk, size_t i) {
      WindowScorer<T> windows(op_, prepared<T>(), views_[chunk.example], window_);
      windows.set_chunk(chunk.first, chunk.count);
      windows.begin_gradients();
      parts[i].resize(first_arc.back());
      TermPosteriors<T> terms;
      for_each_graph(chunk, [&](size_t k, const double* scale, bool wants_arcs) {
        terms.plain.clear();
        terms.scaled.clear();
        windows.add(k, scale, wants_arcs ? &terms : nullptr);
        if (wants_arcs) sum_terms(k, terms, std::span(parts[i]).subspan(first_arc[k]));
      });
      rows[i] = windows.gradients();
    });
    std::optional<WindowScorer<T>> windows;
    for (size_t i = 0; i < some.size(); ++i) {
      const auto& [e, first, count] = some[i];
      if (i == 0 || e != some[i - 1].example)
        windows.emplace(op_, prepared<T>(), views_[e], window_);
      windows->end_gradients(first, count, rows[i], to.at(e));
      for (size_t k = 0; k < num_graphs; ++k)
        for (size_t a = 0; a < arcs_of(e, k).size(); ++a)
          arcs_of(e, k)[a] += parts[i][first_arc[k] + a];
    }
  }
}

template <class T>
void OuterBatch::sum_terms(size_t k, const TermPosteriors<T>& terms, std::span<double> arcs) const {
  const OuterGraph<T>& graph = prepared<T>()[k];
  const TrellisGraph& arranged = *graph.factor->trellis_graph;
  const Rows& out = arranged.out;
  for (size_t t = 0; t < graph.num_posteriors(); ++t) {
    // Node weights are behind the arcs, as their posteriors are behind those of terms.
    const bool is_term = t < out.arc.size();
    const int32_t index =
        is_term ? out.arc[t] : arranged.num_arcs() + static_cast<int32_t>(t - out.arc.size());
    if (index < 0) continue;
    const auto sum_lanes = [&](const auto& values) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(t * kLanes);
      return std::accumulate(begin, begin + kLanes, 0.0);
    };
    double sum = 0.0;
    if (!terms.plain.empty())
      sum = sum_lanes(terms.plain) * (is_term ? graph.out_weights()[t] : 1.0);
    if (!terms.scaled.empty()) sum += sum_lanes(terms.scaled);
    arcs[static_cast<size_t>(index)] += sum;
  }
}

void OuterBatch::add_hvps(const Weights& deltas, std::span<const Weights> tangents,
                          std::span<Gradient* const> grads, Gradient* jvps) const {
  if (semiring_ == Semiring::tropical) {
    if (jvps) add_best_jvps(tangents, jvps->sum().fill<double>().data());
    return;
  }
  const EmissionsGrads to = destinations(grads);
  for (size_t e = 0; e < emissions.size(); ++e)
    if (const EmissionsGrad grad = to.at(e); grad.is_unset) grad.clear(0, views_[e].frames);
  const double* const delta = deltas.view<double>().data();
  double* const jvp = jvps ? jvps->sum().fill<double>().data() : nullptr;
  ArcGrads arcs(emissions.size() * graphs.size());
  std::vector<std::vector<double>> arc_tangents;
  for (size_t k = 0; k < graphs.size(); ++k) arc_tangents.push_back(to_doubles(tangents[k]));
  parallel_for(emissions.size(), [&](size_t e) {
    const std::vector<double> frame_tangents = to_doubles(tangents[graphs.size() + e]);
    for (size_t k = 0; k < graphs.size(); ++k) {
      std::vector<double>& arc = arcs[e * graphs.size() + k];
      if (grads[k]) arc.resize(static_cast<size_t>(graphs[k].num_weights()));
      std::vector<HvpExample> windows;
      std::deque<std::vector<double>> window_tangents;
      for (int32_t w = 0; w < num_windows(e); ++w) {
        const Emissions view = window(e, w);
        std::span<const double> tangent;
        if (!frame_tangents.empty()) {
          window_tangents.emplace_back();
          for (int32_t f = 0; f < view.frames; ++f) {
            const auto row = frame_tangents.begin() + window_.frame(w, f) * view.labels;
            window_tangents.back().insert(window_tangents.back().end(), row, row + view.labels);
          }
          tangent = window_tangents.back();
        }
        windows.push_back({view, tangent, delta[cell(e, w, k)],
                           slice(to.at(e), w * window_.stride, window_.dilation)});
      }
      std::vector<double> found(windows.size());
      trellis::add_hvps(op_, factor(k), arc_tangents[k], windows, arc, found);
      for (size_t w = 0; jvp && w < found.size(); ++w)
        jvp[cell(e, static_cast<int32_t>(w), k)] += found[w];
    }
  });
  to.join();
  sum_arcs(arcs, grads);
}

EmissionsGrads OuterBatch::destinations(std::span<Gradient* const> grads) const {
  std::vector<int32_t> labels;
  for (const Emissions& view : views_) labels.push_back(view.labels);
  const auto of_emissions = grads.subspan(graphs.size(), emissions.size());
  return {{of_emissions.begin(), of_emissions.end()}, std::move(labels)};
}

void OuterBatch::sum_arcs(const ArcGrads& arcs, std::span<Gradient* const> grads) const {
  for (size_t k = 0; k < graphs.size(); ++k) {
    if (!grads[k]) continue;
    std::vector<double> sum(static_cast<size_t>(graphs[k].num_weights()));
    for (size_t e = 0; e < emissions.size(); ++e) {
      const std::vector<double>& part = arcs[e * graphs.size() + k];
      for (size_t a = 0; a < part.size(); ++a) sum[a] += part[a];
    }
    ArcMap::identity().apply(Weights::from(sum), grads[k]->sum(), 1.0);
  }
}

template <class F>
void OuterBatch::for_each_best(bool with_paths, F f) const {
  for_each_example([&](size_t e) {
    std::vector<Emissions> windows;
    for (int32_t w = 0; w < num_windows(e); ++w) windows.push_back(window(e, w));
    for (size_t k = 0; k < graphs.size(); ++k) {
      poll_interrupt();
      const std::vector<BestAlignment> found =
          find_best(op_, *factor(k).trellis_graph, factor(k).weights, windows, with_paths);
      for (size_t w = 0; w < found.size(); ++w) f(e, static_cast<int32_t>(w), k, found[w]);
    }
  });
}

template <class F>
void OuterBatch::for_each_step(size_t e, int32_t w, size_t k, const BestAlignment& best,
                               F f) const {
  const auto label = graphs[k].topology().label(Side::output);
  for (const BestStep& step : best.steps)
    f(static_cast<size_t>(step.arc),
      step.frame < 0 ? -1 : window_.frame(w, step.frame) * views_[e].labels + label[step.arc]);
}

void OuterBatch::score_best(double* to) const {
  for_each_best(false, [&](size_t e, int32_t w, size_t k, const BestAlignment& best) {
    to[cell(e, w, k)] = best.score;
  });
}

void OuterBatch::add_best(const double* delta, const EmissionsGrads& to, ArcGrads& arcs) const {
  for_each_best(true, [&](size_t e, int32_t w, size_t k, const BestAlignment& best) {
    const double scale = delta[cell(e, w, k)];
    std::vector<double>& arc = arcs[e * graphs.size() + k];
    const EmissionsGrad grad = to.at(e);
    for_each_step(e, w, k, best, [&](size_t a, int64_t at) {
      if (!arc.empty()) arc[a] += scale;
      if (!grad.data || at < 0) return;
      dispatch(grad.dtype, [&](auto kind) {
        using G = decltype(kind);
        grad.row<G>(at / grad.labels)[at % grad.labels] += static_cast<G>(scale);
      });
    });
  });
}

void OuterBatch::add_best_jvps(std::span<const Weights> tangents, double* jvps) const {
  std::vector<std::vector<double>> values;
  for (const Weights& tangent : tangents) values.push_back(to_doubles(tangent));
  for_each_best(true, [&](size_t e, int32_t w, size_t k, const BestAlignment& best) {
    const std::vector<double>&of_arcs = values[k], &of_frames = values[graphs.size() + e];
    for_each_step(e, w, k, best, [&](size_t a, int64_t at) {
      if (!of_arcs.empty()) jvps[cell(e, w, k)] += of_arcs[a];
      if (!of_frames.empty() && at >= 0) jvps[cell(e, w, k)] += of_frames[static_cast<size_t>(at)];
    });
  });
}

template <class T, class F>
void OuterBatch::for_each_run(F f) const {
  const size_t together = window_.size == 0 ? kLanes : 1;
  const size_t count = (emissions.size() + together - 1) / together;
  parallel_for(count, [&](size_t i) {
    const size_t end = std::min(emissions.size(), (i + 1) * together);
    std::vector<WindowRow> rows;
    for (size_t e = i * together; e < end; ++e)
      for (int32_t w = 0; w < num_windows(e); ++w) rows.push_back({e, w});
    std::vector<Emissions> windows;
    for (const auto& [e, w] : rows) windows.push_back(window(e, w));
    try {
      for (size_t k = 0; k < graphs.size(); ++k) {
        RowsRun<T, kLanes> run(prepared<T>()[k].factor, prepared<T>()[k].weights());
        for (size_t first = 0; first < rows.size(); first += kLanes) {
          const size_t size = std::min(kLanes, rows.size() - first);
          f(run, k, std::span<const WindowRow>(rows).subspan(first, size),
            std::span<const Emissions>(windows).subspan(first, size));
        }
      }
    } catch (const std::invalid_argument&) {
      rethrow_for_example(i * together, end);
    }
  });
}

template <class F>
void OuterBatch::for_each_example(F f) const {
  parallel_for(emissions.size(), [&](size_t e) {
    try {
      f(e);
    } catch (const std::invalid_argument&) {
      rethrow_for_example(e, e + 1);
    }
  });
}

std::vector<OuterBatch::WindowChunk> OuterBatch::chunks(size_t begin, size_t end) const {
  constexpr auto kMost = static_cast<int32_t>(kLanes);
  std::vector<WindowChunk> out;
  for (size_t e = begin; e < end; ++e)
    for (int32_t first = 0; first < num_windows(e); first += kMost)
      out.push_back({e, first, std::min(kMost, num_windows(e) - first)});
  return out;
}

template <class F>
void OuterBatch::for_each_chunk(std::span<const WindowChunk> chunks, F f) const {
  parallel_for(chunks.size(), [&](size_t i) {
    try {
      f(chunks[i], i);
    } catch (const std::invalid_argument&) {
      rethrow_for_example(chunks[i].example, chunks[i].example + 1);
    }
  });
}

void OuterBatch::rethrow_for_example(size_t begin, size_t end) const {
  for (size_t e = begin; e < end; ++e) {
    try {
      for (size_t k = 0; k < graphs.size(); ++k)
        for (int32_t t = 0; t < views_[e].frames; ++t)
          check_emissions(op_, factor(k).trellis_graph->labels, views_[e], t);
    } catch (const std::invalid_argument&) {
      if (emissions.size() == 1) throw;
      rethrow_for_element(op_, e, emissions.size());
    }
  }
  throw;
}

}  // namespace arcgrad::trellis
