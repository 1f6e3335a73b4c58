#pragma once

// WindowScorer: scores and gradients of short windows of one example against many graphs.

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/outer/outer_graph.h"
#include "arcgrad/trellis/outer/outer_loops.h"
#include "arcgrad/trellis/outer/window_shape.h"

namespace arcgrad::trellis {

template <class T>
const WindowTable<T>& window_table() {
  if constexpr (sizeof(T) == 8)
    return ARCGRAD_LOOPS(windows_double);
  else
    return ARCGRAD_LOOPS(windows_float);
}

/// Scores windows of one example, 8 side by side, against one graph after the other.
///
/// The emissions of a chunk of 8 windows are split into mantissas and exponents once for all
/// graphs. Each frame of a chunk is divided by the power of two of its largest emission. If the
/// range of the scaled emissions and of the weights of a graph is below kPlainBits, the
/// forward-backward recursion runs in plain doubles and can neither overflow nor underflow; else it
/// runs on mantissas and exponents. Nothing is kept for gradients: add() runs the window forward
/// again.
template <class T>
class WindowScorer {
 public:
  WindowScorer(const char* op, const std::vector<OuterGraph<T>>& graphs, const Emissions& view,
               WindowShape window)
      : op_(op), graphs_(graphs), view_(view), window_(window) {
    size_t most_values = 0, most_emitting = 0;
    for (const OuterGraph<T>& graph : graphs) {
      const TrellisGraph& trellis_graph = *graph.factor->trellis_graph;
      most_values = std::max(most_values, static_cast<size_t>(trellis_graph.num_values));
      most_emitting = std::max(most_emitting, static_cast<size_t>(trellis_graph.num_emitting));
    }
    // One slot per label, and one with score zero for labels that the emissions lack.
    num_slots_ = static_cast<size_t>(view.labels) + 1;
    for (const OuterGraph<T>& graph : graphs) {
      slot_of_.push_back(graph.label.data());
      if (std::ranges::all_of(graph.label, [&](int32_t l) { return l < view.labels; })) continue;
      own_slots_.push_back(graph.label);
      for (int32_t& l : own_slots_.back()) l = std::min(l, view.labels);
      slot_of_.back() = own_slots_.back().data();
    }
    const size_t emissions = static_cast<size_t>(window.size) * num_slots_ * kLanes;
    emissions_.reserve(emissions);
    plain_emissions_ = AlignedBuffer<double>(static_cast<int64_t>(emissions));
    plain_values_ = AlignedBuffer<double>(
        static_cast<int64_t>((static_cast<size_t>(window.size) + 3) * most_values * kLanes));
    posteriors_.resize(most_emitting * kLanes);
    values_size_ = most_values * kLanes;
    values_.reserve((static_cast<size_t>(window.size) + 3) * values_size_);
    labels_.resize(num_slots_);
    std::iota(labels_.begin(), labels_.end(), 0);
    // Converts emissions of the other type once.
    if ((view.dtype == DType::float64) != (sizeof(T) == 8)) {
      converted_ = AlignedBuffer<T>(int64_t{view.frames} * view.labels);
      dispatch(view.dtype, [&](auto kind) {
        const auto* from = static_cast<const decltype(kind)*>(view.data);
        for (int64_t t = 0; t < view.frames; ++t)
          for (int64_t c = 0; c < view.labels; ++c)
            converted_[t * view.labels + c] =
                static_cast<T>(from[t * view.row_stride + c * view.col_stride]);
      });
      view_ = {converted_.get(), sizeof(T) == 8 ? DType::float64 : DType::float32,
               view.frames,      view.labels,
               view.labels,      1};
    }
  }

  /// Selects `count` windows from `first` on.
  void set_chunk(int32_t first, int32_t count) {
    poll_interrupt();
    first_ = first;
    count_ = count;
    std::array<double, kLanes> spread{};
    unit_.fill(0.0);
    for (int32_t f = 0; f < window_.size; ++f) {
      const T* row[kLanes] = {};
      int64_t stride[kLanes] = {};
      int32_t labels[kLanes] = {};
      for (int32_t l = 0; l < count; ++l) {
        row[l] = static_cast<const T*>(view_.data) + frame(l, f) * view_.row_stride;
        stride[l] = view_.col_stride;
        labels[l] = view_.labels;
      }
      if (lanes_.split(slots(), row, stride, labels, at(emissions_, f, num_slots_ * kLanes)))
        check(f);
      Q top[kLanes], least[kLanes];
      table_.load(static_cast<int32_t>(num_slots_), at(emissions_, f, num_slots_ * kLanes),
                  plain_emissions_.get() + static_cast<size_t>(f) * num_slots_ * kLanes, top,
                  least);
      for (size_t l = 0; l < kLanes; ++l) {
        unit_[l] += static_cast<double>(top[l]);
        spread[l] += static_cast<double>(top[l] - least[l]) + 1.0;
      }
    }
    bits_ = std::ranges::max(spread);
  }

  /// Computes the scores of the windows for graph k.
  void score(size_t k, double* scores) {
    if (is_plain(k)) {
      double total[kLanes];
      table_.forward(plain_window(k), plain_values_.get(), total);
      table_.log(total, unit_.data(), scores);
      return;
    }
    forward(k);
    for (int32_t l = 0; l < count_; ++l) scores[l] = log(total_[l]);
  }

  /// Clears the gradient of the emissions of the chunk.
  void begin_gradients() {
    gradients_.assign(static_cast<size_t>(window_.size) * num_slots_ * kLanes, T{0});
  }

  /// Adds delta times the posteriors of graph k to the gradient of the emissions, and to `terms`
  /// unless that is null.
  void add(size_t k, const double* deltas, TermPosteriors<T>* terms) {
    const size_t num_terms = terms ? graphs_[k].num_posteriors() * kLanes : 0;
    if (is_plain(k)) {
      if (terms) terms->plain.resize(num_terms);
      add_plain(k, deltas, terms ? terms->plain.data() : nullptr);
    } else {
      if (terms) terms->scaled.resize(num_terms);
      add_scaled(k, deltas, terms ? terms->scaled.data() : nullptr);
    }
  }

  /// The gradient of the emissions of the chunk.
  const std::vector<T>& gradients() const { return gradients_; }
  /// Adds the gradient of the emissions of a chunk to the gradient of the example.
  void end_gradients(int32_t first, int32_t count, const std::vector<T>& gradients,
                     const EmissionsGrad& grad) const {
    if (!grad.data) return;
    for (int32_t f = 0; f < window_.size; ++f) {
      const T* from = gradients.data() + static_cast<size_t>(f) * num_slots_ * kLanes;
      if ((grad.dtype == DType::float64) == (sizeof(T) == 8)) {
        T* row[kLanes] = {};
        int32_t labels[kLanes] = {};
        for (int32_t l = 0; l < count; ++l) {
          row[l] = grad.row<T>(window_.frame(first + l, f));
          labels[l] = view_.labels;
        }
        lanes_.scatter(slots(), from, row, labels);
        continue;
      }
      dispatch(grad.dtype, [&](auto kind) {
        using G = decltype(kind);
        for (int32_t l = 0; l < count; ++l)
          for (int32_t c = 0; c < view_.labels; ++c)
            grad.row<G>(window_.frame(first + l, f))[c] +=
                static_cast<G>(from[static_cast<size_t>(c) * kLanes + static_cast<size_t>(l)]);
      });
    }
  }

 private:
  using Q = Exponent<T>;
  struct ScaledArray {
    AlignedBuffer<T> mantissa;
    AlignedBuffer<Q> exponent;
    void reserve(size_t size) {
      mantissa = AlignedBuffer<T>(static_cast<int64_t>(size));
      exponent = AlignedBuffer<Q>(static_cast<int64_t>(size));
    }
  };
  static Scores<T> at(const ScaledArray& store, int32_t i, size_t size) {
    const size_t offset = static_cast<size_t>(i) * size;
    return {store.mantissa.get() + offset, store.exponent.get() + offset};
  }
  int64_t frame(int32_t lane, int32_t f) const { return window_.frame(first_ + lane, f); }
  /// The slots of all labels of the emissions, and the slot with score zero.
  Shape slots() const { return {0, 0, static_cast<int32_t>(num_slots_), nullptr, labels_.data()}; }
  Shape shape(size_t k) const {
    const TrellisGraph& trellis_graph = *graphs_[k].factor->trellis_graph;
    return {trellis_graph.num_emitting, trellis_graph.num_values, static_cast<int32_t>(num_slots_),
            slot_of_[k], labels_.data()};
  }

  bool is_plain(size_t k) const { return bits_ + graphs_[k].bits < kPlainBits; }
  PlainWindow plain_window(size_t k) const {
    const OuterGraph<T>& graph = graphs_[k];
    const TrellisGraph& trellis_graph = *graph.factor->trellis_graph;
    return {shape(k),
            {trellis_graph.in().offset.data(), trellis_graph.in().index.data(), graph.in_weights()},
            {trellis_graph.out.offset.data(), trellis_graph.out.index.data(), graph.out_weights()},
            graph.begin(),
            graph.end(),
            plain_emissions_.get(),
            window_.size};
  }

  void add_plain(size_t k, const double* deltas, double* terms) {
    const PlainWindow window = plain_window(k);
    const size_t used = (static_cast<size_t>(window_.size) + 1) *
                        static_cast<size_t>(window.shape.num_values) * kLanes;
    double total[kLanes], scale[kLanes] = {};
    table_.forward(window, plain_values_.get(), total);
    for (int32_t l = 0; l < count_; ++l)
      if (total[l] > 0.0) scale[l] = deltas[l] / total[l];
    table_.backward(window, plain_values_.get(), scale, plain_values_.get() + used,
                    gradients_.data(), terms);
    if (!terms) return;
    // The scores to the end before the first frame, and those after the last.
    const double *const b = plain_values_.get() + used, *const v =
                                                            b - static_cast<size_t>(
                                                                    window.shape.num_values) *
                                                                    kLanes;
    add_node_weights(k, terms, [&](bool is_start, size_t at, size_t l, Scaled weight) {
      return (is_start ? b : v)[at] * weight.mantissa * pow2(weight.exponent) * scale[l];
    });
  }

  /// Adds value(is_start, state and lane, lane, weight) for each node weight and lane.
  template <class P, class Value>
  void add_node_weights(size_t k, P* terms, const Value& value) const {
    const Factor& factor = *graphs_[k].factor;
    P* to = terms + factor.trellis_graph->out.index.size() * kLanes;
    const auto add = [&](bool is_start, int32_t state, int32_t index) {
      for (size_t l = 0; l < kLanes; ++l)
        *to++ += static_cast<P>(
            value(is_start, static_cast<size_t>(state) * kLanes + l, l, factor.weight(index)));
    };
    factor.for_start_weights([&](int32_t v, int32_t w) { add(true, v, w); });
    factor.for_accept_weights([&](int32_t v, int32_t w) { add(false, v, w); });
  }

  /// The same on mantissas and exponents, for scores of any size.
  void add_scaled(size_t k, const double* deltas, T* terms) {
    T delta[kLanes] = {};
    forward(k);
    Exponent<T> unit[kLanes];
    for (int32_t l = 0; l < static_cast<int32_t>(kLanes); ++l) {
      const bool is_wanted = l < count_ && !total_[l].is_zero();
      delta[l] = is_wanted ? static_cast<T>(deltas[l]) : T{0};
      unit[l] = is_wanted ? static_cast<Exponent<T>>(total_[l].exponent) : 0;
    }
    const OuterGraph<T>& graph = graphs_[k];
    const TrellisGraph& trellis_graph = *graph.factor->trellis_graph;
    const RowWeights<T>& weights = *graph.weights();
    const WeightedRows<T> out{trellis_graph.out.offset.data(), trellis_graph.out.index.data(),
                              weights.out_mantissa.data(), weights.out_exponent.data()};
    const Scores<T> b = at(values_, window_.size + 1, values_size_),
                    g = at(values_, window_.size + 2, values_size_);
    fill(trellis_graph, weights.end_mantissa, weights.end_exponent, b);
    std::array<T, kLanes> first_scale{};
    for (int32_t f = window_.size; f >= 1; --f) {
      const Scores<T> emissions = at(emissions_, f - 1, num_slots_ * kLanes);
      const Scores<T> before = at(values_, f - 1, values_size_);
      T sum[kLanes], scale[kLanes];
      lanes_.posteriors(shape(k), {0, trellis_graph.num_emitting}, emissions,
                        at(values_, f, values_size_), b, unit, posteriors_.data(), sum, g);
      for (size_t l = 0; l < kLanes; ++l) scale[l] = sum[l] > T{0} ? delta[l] / sum[l] : T{0};
      lanes_.collect(shape(k), posteriors_.data(), scale,
                     gradients_.data() + static_cast<size_t>(f - 1) * num_slots_ * kLanes);
      if (f == window_.size)
        for (size_t l = 0; l < kLanes; ++l) last_scale_[l] = scale[l];
      if (f == 1) std::copy_n(scale, kLanes, first_scale.begin());
      lanes_.backward(shape(k), {0, trellis_graph.num_values}, out, g, b, before.mantissa,
                      before.exponent, unit, scale, terms);
    }
    if (!terms) return;
    add_ends(k, terms);
    const Scores<T> v = at(values_, window_.size, values_size_);
    add_node_weights(k, terms, [&](bool is_start, size_t i, size_t l, Scaled weight) {
      const Scores<T> others = is_start ? b : v;
      const Scaled path = product(
          {static_cast<double>(others.mantissa[i]), static_cast<double>(others.exponent[i])},
          weight);
      return quotient(path, {1.0, total_[l].exponent}) *
             static_cast<double>(is_start ? first_scale[l] : last_scale_[l]);
    });
  }

  void check(int32_t f) const {
    for (int32_t l = 0; l < count_; ++l)
      for (const OuterGraph<T>& graph : graphs_)
        check_emissions(op_, graph.factor->trellis_graph->labels, view_,
                        static_cast<int32_t>(frame(l, f)));
  }

  static void fill(const TrellisGraph& trellis_graph, const std::vector<T>& mantissa,
                   const std::vector<Q>& exponent, Scores<T> to) {
    for (size_t v = 0; v < static_cast<size_t>(trellis_graph.num_values); ++v)
      for (size_t l = 0; l < kLanes; ++l) {
        to.mantissa[v * kLanes + l] = mantissa[v];
        to.exponent[v * kLanes + l] = exponent[v];
      }
  }

  void forward(size_t k) {
    const OuterGraph<T>& graph = graphs_[k];
    const TrellisGraph& trellis_graph = *graph.factor->trellis_graph;
    const Rows& rows = trellis_graph.in();
    const RowWeights<T>& weights = *graph.weights();
    const WeightedRows<T> in{rows.offset.data(), rows.index.data(), weights.in_mantissa.data(),
                             weights.in_exponent.data()};
    Scores<T> from = at(values_, 0, values_size_);
    fill(trellis_graph, weights.begin_mantissa, weights.begin_exponent, from);
    for (int32_t f = 1; f <= window_.size; ++f) {
      const Scores<T> to = at(values_, f, values_size_);
      lanes_.forward(shape(k), {0, trellis_graph.num_values}, in,
                     at(emissions_, f - 1, num_slots_ * kLanes), from, to);
      from = to;
    }
    T mantissa[kLanes];
    Q exponent[kLanes];
    lanes_.finish(shape(k), from, weights.end_mantissa.data(), weights.end_exponent.data(),
                  mantissa, exponent);
    for (size_t l = 0; l < kLanes; ++l)
      total_[l] = mantissa[l] > T{0} ? renormalize(static_cast<double>(mantissa[l]),
                                                   static_cast<double>(exponent[l]))
                                     : Scaled{};
  }

  /// Adds the posteriors of the epsilon arcs after the last frame.
  void add_ends(size_t k, T* terms) const {
    const Factor& factor = *graphs_[k].factor;
    const TrellisGraph& trellis_graph = *factor.trellis_graph;
    if (trellis_graph.num_values == trellis_graph.num_emitting) return;
    const Scores<T> v = at(values_, window_.size, values_size_);
    for (size_t i = 0; i < static_cast<size_t>(trellis_graph.num_values); ++i)
      for (int32_t t = trellis_graph.out.offset[i]; t < trellis_graph.out.offset[i + 1]; ++t) {
        const int32_t s = trellis_graph.out.index[t], a = trellis_graph.out.arc[t];
        if (s < trellis_graph.num_emitting || a < 0 || factor.end[s].is_zero()) continue;
        for (size_t l = 0; l < kLanes; ++l) {
          const double m = static_cast<double>(v.mantissa[i * kLanes + l]) * factor.mantissa[a] *
                           factor.end[s].mantissa * static_cast<double>(last_scale_[l]);
          if (m == 0.0) continue;
          const double q = static_cast<double>(v.exponent[i * kLanes + l]) + factor.exponent[a] +
                           factor.end[s].exponent - total_[l].exponent;
          terms[static_cast<size_t>(t) * kLanes + l] +=
              static_cast<T>(m * pow2(std::min(q, 100.0)));
        }
      }
  }

  const char* op_;
  const std::vector<OuterGraph<T>>& graphs_;
  Emissions view_;
  WindowShape window_;
  const LanesTable<T>& lanes_ = lanes_loops<T>();
  const WindowTable<T>& table_ = window_table<T>();
  size_t num_slots_ = 0, values_size_ = 0;
  std::vector<int32_t> labels_;
  std::vector<const int32_t*> slot_of_;         // of the emitting states of each graph
  std::deque<std::vector<int32_t>> own_slots_;  // if they differ from the labels
  AlignedBuffer<T> converted_;
  ScaledArray emissions_, values_;
  AlignedBuffer<double> plain_emissions_, plain_values_;
  /// The exponents to which plain scores are relative, and the factors of 2 by which emissions may
  /// change scores.
  std::array<double, kLanes> unit_{};
  double bits_ = 0.0;
  std::vector<T> posteriors_, gradients_;
  int32_t first_ = 0, count_ = 0;
  std::array<Scaled, kLanes> total_;
  std::array<T, kLanes> last_scale_{};
};

}  // namespace arcgrad::trellis
