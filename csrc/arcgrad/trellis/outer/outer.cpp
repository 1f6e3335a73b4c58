#include "arcgrad/trellis/outer/outer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <numeric>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/best/best.h"
#include "arcgrad/trellis/hvp/hvp.h"
#include "arcgrad/trellis/kernels/lanes.h"
#include "arcgrad/trellis/outer/outer_loops.h"
#include "arcgrad/trellis/plan.h"

namespace arcgrad::trellis {
namespace {

/// Some frames of an example, from `begin` on.
Emissions slice(const Emissions& view, int32_t begin, int32_t size, int32_t dilation) {
  Emissions out = view;
  const int64_t offset = begin * view.row_stride;
  out.data = dispatch(view.dtype, [&](auto kind) -> const void* {
    return static_cast<const decltype(kind)*>(view.data) + offset;
  });
  out.frames = size;
  out.row_stride *= dilation;
  return out;
}

/// Windows overlap, so the gradient was cleared before.
EmissionsGrad slice(const EmissionsGrad& grad, int32_t begin, int32_t dilation) {
  if (!grad.data) return grad;
  EmissionsGrad out = grad;
  out.is_unset = false;
  out.data =
      dispatch(grad.dtype, [&](auto kind) -> void* { return grad.row<decltype(kind)>(begin); });
  out.row_stride *= dilation;
  return out;
}

/// Scores that are moved by fewer bits stay within the range of a double, and so do gradients.
constexpr double kPlainBits = 900.0;

/// A graph of an outer score, for recursions of type T.
template <class T>
struct Kernel {
  std::shared_ptr<const Factor> factor;
  std::vector<int32_t> label;  // of each place
  /// The weights of its in-terms and out-terms, and the scores of values before the first and after
  /// the last frame; only if they fit plain numbers.
  Buffer<double> plain;
  /// How many bits its weights may move a score, in a window.
  double bits = kPlainBits;

  /// For recursions on mantissas and exponents, which not every call needs.
  const std::shared_ptr<const RowWeights<T>>& weights() const {
    std::call_once(once_, [&] { weights_ = std::make_shared<const RowWeights<T>>(*factor); });
    return weights_;
  }

  /// Fills `plain` for windows of so many frames.
  void make_plain(int32_t frames) {
    const TrellisGraph& form = *factor->form;
    double reach = 0.0;
    for (size_t a = 0; a < factor->exponent.size(); ++a)
      if (factor->mantissa[a] > 0.0) reach = std::max(reach, std::abs(factor->exponent[a]) + 1.0);
    int32_t widest = 1;
    for (const Rows* rows : {&form.in(), &form.out})
      for (size_t r = 1; r < rows->offset.size(); ++r)
        widest = std::max(widest, rows->offset[r] - rows->offset[r - 1]);
    const int32_t num_sums = form.num_values - form.num_emitting;
    bits = (frames + (frames + 1.0) * num_sums) *
           (reach + static_cast<double>(std::bit_width(static_cast<uint32_t>(widest))));
    if (bits >= kPlainBits) return;
    plain.reserve(
        static_cast<size_t>(form.in().num_terms() + form.out.num_terms() + 2 * form.num_values));
    for (const Rows* rows : {&form.in(), &form.out})
      for (int32_t a : rows->arc)
        plain.push_back(a < 0 ? 1.0 : factor->mantissa[a] * pow2(factor->exponent[a]));
    for (const std::vector<Scaled>* ends : {&factor->begin, &factor->end})
      for (const Scaled& score : *ends)
        plain.push_back(score.is_zero() ? 0.0 : score.mantissa * pow2(score.exponent));
  }
  const double* in_weights() const { return plain.data(); }
  const double* out_weights() const { return in_weights() + factor->form->in().num_terms(); }
  const double* begin() const { return out_weights() + factor->form->out.num_terms(); }
  const double* end() const { return begin() + factor->form->num_values; }

 private:
  mutable std::once_flag once_;
  mutable std::shared_ptr<const RowWeights<T>> weights_;
};

/// The posteriors of the out-terms of a graph, 8 for each: as they are, and without the weights.
template <class T>
struct TermSums {
  std::vector<T> scaled;
  std::vector<double> plain;
};

template <class T>
const WindowTable<T>& window_steps() {
  if constexpr (sizeof(T) == 8)
    return ARCGRAD_LOOPS(windows_double);
  else
    return ARCGRAD_LOOPS(windows_float);
}

/// Windows of one example, 8 side by side, against one graph after the other. The emissions of a
/// chunk of windows are split once for all graphs.
template <class T>
class Windows {
 public:
  Windows(const char* op, const std::vector<Kernel<T>>& kernels, const Emissions& view,
          WindowShape window)
      : op_(op), kernels_(kernels), view_(view), window_(window) {
    size_t most_values = 0, most_places = 0;
    for (const Kernel<T>& kernel : kernels) {
      const TrellisGraph& form = *kernel.factor->form;
      most_values = std::max(most_values, static_cast<size_t>(form.num_values));
      most_places = std::max(most_places, static_cast<size_t>(form.num_emitting));
    }
    // One slot per label, and a dead one for labels that the emissions do not have.
    num_slots_ = static_cast<size_t>(view.labels) + 1;
    for (const Kernel<T>& kernel : kernels) {
      slot_of_.push_back(kernel.label.data());
      if (std::ranges::all_of(kernel.label, [&](int32_t l) { return l < view.labels; })) continue;
      own_slots_.push_back(kernel.label);
      for (int32_t& l : own_slots_.back()) l = std::min(l, view.labels);
      slot_of_.back() = own_slots_.back().data();
    }
    const size_t emissions = static_cast<size_t>(window.size) * num_slots_ * kLanes;
    emissions_.reserve(emissions);
    plain_emissions_ = Block<double>(static_cast<int64_t>(emissions));
    plain_values_ = Block<double>(
        static_cast<int64_t>((static_cast<size_t>(window.size) + 3) * most_values * kLanes));
    posteriors_.resize(most_places * kLanes);
    values_size_ = most_values * kLanes;
    values_.reserve((static_cast<size_t>(window.size) + 3) * values_size_);
    labels_.resize(num_slots_);
    std::iota(labels_.begin(), labels_.end(), 0);
    // Emissions of another type are converted once.
    if ((view.dtype == DType::float64) != (sizeof(T) == 8)) {
      converted_ = Block<T>(int64_t{view.frames} * view.labels);
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

  /// Chooses the windows from `first` on.
  void set_chunk(int32_t first, int32_t count) {
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
      if (steps_.split(slots(), row, stride, labels, at(emissions_, f, num_slots_ * kLanes)))
        check(f);
      Q top[kLanes], least[kLanes];
      window_steps_.load(static_cast<int32_t>(num_slots_), at(emissions_, f, num_slots_ * kLanes),
                         plain_emissions_.get() + static_cast<size_t>(f) * num_slots_ * kLanes, top,
                         least);
      for (size_t l = 0; l < kLanes; ++l) {
        unit_[l] += static_cast<double>(top[l]);
        spread[l] += static_cast<double>(top[l] - least[l]) + 1.0;
      }
    }
    bits_ = std::ranges::max(spread);
  }

  /// The scores of the windows for graph k.
  void score(size_t k, double* scores) {
    if (is_plain(k)) {
      double total[kLanes];
      window_steps_.forward(plain_window(k), plain_values_.get(), total);
      window_steps_.log(total, unit_.data(), scores);
      return;
    }
    forward(k);
    for (int32_t l = 0; l < count_; ++l) scores[l] = log(total_[l]);
  }

  /// Clears the gradient of the emissions of the chunk.
  void begin_gradients() {
    gradients_.assign(static_cast<size_t>(window_.size) * num_slots_ * kLanes, T{0});
  }

  /// Adds delta times the posteriors of graph k: to the gradient of the emissions, and to `terms`
  /// unless null.
  void add(size_t k, const double* deltas, TermSums<T>* terms) {
    const size_t num_terms = terms ? kernels_[k].factor->form->out.index.size() * kLanes : 0;
    if (is_plain(k)) {
      if (terms) terms->plain.resize(num_terms);
      add_plain(k, deltas, terms ? terms->plain.data() : nullptr);
    } else {
      if (terms) terms->scaled.resize(num_terms);
      add_scaled(k, deltas, terms ? terms->scaled.data() : nullptr);
    }
  }

  /// Adds the gradient of the emissions of the chunk to that of the example.
  void end_gradients(const EmissionsGrad& grad) const {
    if (!grad.data) return;
    for (int32_t f = 0; f < window_.size; ++f) {
      const T* from = gradients_.data() + static_cast<size_t>(f) * num_slots_ * kLanes;
      if ((grad.dtype == DType::float64) == (sizeof(T) == 8)) {
        T* row[kLanes] = {};
        int32_t labels[kLanes] = {};
        for (int32_t l = 0; l < count_; ++l) {
          row[l] = grad.row<T>(frame(l, f));
          labels[l] = view_.labels;
        }
        steps_.scatter(slots(), from, row, labels);
        continue;
      }
      dispatch(grad.dtype, [&](auto kind) {
        using G = decltype(kind);
        for (int32_t l = 0; l < count_; ++l)
          for (int32_t c = 0; c < view_.labels; ++c)
            grad.row<G>(frame(l, f))[c] +=
                static_cast<G>(from[static_cast<size_t>(c) * kLanes + static_cast<size_t>(l)]);
      });
    }
  }

 private:
  using Q = Exponent<T>;
  struct Store {
    Block<T> mantissa;
    Block<Q> exponent;
    void reserve(size_t size) {
      mantissa = Block<T>(static_cast<int64_t>(size));
      exponent = Block<Q>(static_cast<int64_t>(size));
    }
  };
  static Scores<T> at(const Store& store, int32_t i, size_t size) {
    const size_t offset = static_cast<size_t>(i) * size;
    return {store.mantissa.get() + offset, store.exponent.get() + offset};
  }
  int64_t frame(int32_t lane, int32_t f) const {
    return int64_t{first_ + lane} * window_.stride + int64_t{f} * window_.dilation;
  }
  /// All labels of the emissions, and one that they do not have.
  Shape slots() const { return {0, 0, static_cast<int32_t>(num_slots_), nullptr, labels_.data()}; }
  Shape shape(size_t k) const {
    const TrellisGraph& form = *kernels_[k].factor->form;
    return {form.num_emitting, form.num_values, static_cast<int32_t>(num_slots_), slot_of_[k],
            labels_.data()};
  }

  bool is_plain(size_t k) const { return bits_ + kernels_[k].bits < kPlainBits; }
  PlainWindow plain_window(size_t k) const {
    const Kernel<T>& kernel = kernels_[k];
    const TrellisGraph& form = *kernel.factor->form;
    return {shape(k),
            {form.in().offset.data(), form.in().index.data(), kernel.in_weights()},
            {form.out.offset.data(), form.out.index.data(), kernel.out_weights()},
            kernel.begin(),
            kernel.end(),
            plain_emissions_.get(),
            window_.size};
  }

  void add_plain(size_t k, const double* deltas, double* terms) {
    const PlainWindow window = plain_window(k);
    const size_t used = (static_cast<size_t>(window_.size) + 1) *
                        static_cast<size_t>(window.shape.num_values) * kLanes;
    double total[kLanes], scale[kLanes] = {};
    window_steps_.forward(window, plain_values_.get(), total);
    for (int32_t l = 0; l < count_; ++l)
      if (total[l] > 0.0) scale[l] = deltas[l] / total[l];
    window_steps_.backward(window, plain_values_.get(), scale, plain_values_.get() + used,
                           gradients_.data(), terms);
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
    const Kernel<T>& kernel = kernels_[k];
    const TrellisGraph& form = *kernel.factor->form;
    const RowWeights<T>& weights = *kernel.weights();
    const WeightedRows<T> out{form.out.offset.data(), form.out.index.data(),
                              weights.out_mantissa.data(), weights.out_exponent.data()};
    const Scores<T> b = at(values_, window_.size + 1, values_size_),
                    g = at(values_, window_.size + 2, values_size_);
    fill(form, weights.end_mantissa, weights.end_exponent, b);
    for (int32_t f = window_.size; f >= 1; --f) {
      const Scores<T> emissions = at(emissions_, f - 1, num_slots_ * kLanes);
      const Scores<T> before = at(values_, f - 1, values_size_);
      T sum[kLanes], scale[kLanes];
      steps_.posteriors(shape(k), emissions, at(values_, f, values_size_), b, unit,
                        posteriors_.data(), sum, g);
      for (size_t l = 0; l < kLanes; ++l) scale[l] = sum[l] > T{0} ? delta[l] / sum[l] : T{0};
      steps_.collect(shape(k), posteriors_.data(), scale,
                     gradients_.data() + static_cast<size_t>(f - 1) * num_slots_ * kLanes);
      if (f == window_.size)
        for (size_t l = 0; l < kLanes; ++l) last_scale_[l] = scale[l];
      steps_.backward(shape(k), out, g, b, before.mantissa, before.exponent, unit, scale, terms);
    }
    if (terms) add_ends(k, terms);
  }

  void check(int32_t f) const {
    for (int32_t l = 0; l < count_; ++l)
      for (const Kernel<T>& kernel : kernels_)
        check_emissions(op_, kernel.factor->form->labels, view_, static_cast<int32_t>(frame(l, f)));
  }

  static void fill(const TrellisGraph& form, const std::vector<T>& mantissa,
                   const std::vector<Q>& exponent, Scores<T> to) {
    for (size_t v = 0; v < static_cast<size_t>(form.num_values); ++v)
      for (size_t l = 0; l < kLanes; ++l) {
        to.mantissa[v * kLanes + l] = mantissa[v];
        to.exponent[v * kLanes + l] = exponent[v];
      }
  }

  void forward(size_t k) {
    const Kernel<T>& kernel = kernels_[k];
    const TrellisGraph& form = *kernel.factor->form;
    const Rows& rows = form.in();
    const RowWeights<T>& weights = *kernel.weights();
    const WeightedRows<T> in{rows.offset.data(), rows.index.data(), weights.in_mantissa.data(),
                             weights.in_exponent.data()};
    Scores<T> from = at(values_, 0, values_size_);
    fill(form, weights.begin_mantissa, weights.begin_exponent, from);
    for (int32_t f = 1; f <= window_.size; ++f) {
      const Scores<T> to = at(values_, f, values_size_);
      steps_.forward(shape(k), in, at(emissions_, f - 1, num_slots_ * kLanes), from, to);
      from = to;
    }
    T mantissa[kLanes];
    Q exponent[kLanes];
    steps_.finish(shape(k), from, weights.end_mantissa.data(), weights.end_exponent.data(),
                  mantissa, exponent);
    for (size_t l = 0; l < kLanes; ++l)
      total_[l] = mantissa[l] > T{0} ? renormalize(static_cast<double>(mantissa[l]),
                                                   static_cast<double>(exponent[l]))
                                     : Scaled{};
  }

  /// Adds the posteriors of the epsilon arcs after the last frame.
  void add_ends(size_t k, T* terms) const {
    const Factor& factor = *kernels_[k].factor;
    const TrellisGraph& form = *factor.form;
    if (form.num_values == form.num_emitting) return;
    const Scores<T> v = at(values_, window_.size, values_size_);
    for (size_t i = 0; i < static_cast<size_t>(form.num_values); ++i)
      for (int32_t t = form.out.offset[i]; t < form.out.offset[i + 1]; ++t) {
        const int32_t s = form.out.index[t], a = form.out.arc[t];
        if (s < form.num_emitting || a < 0 || factor.end[s].is_zero()) continue;
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
  const std::vector<Kernel<T>>& kernels_;
  Emissions view_;
  WindowShape window_;
  const LanesTable<T>& steps_ = lanes_steps<T>();
  const WindowTable<T>& window_steps_ = window_steps<T>();
  size_t num_slots_ = 0, values_size_ = 0;
  std::vector<int32_t> labels_;
  std::vector<const int32_t*> slot_of_;         // of the places of each graph
  std::deque<std::vector<int32_t>> own_slots_;  // where they are not simply the labels
  Block<T> converted_;
  Store emissions_, values_;
  Block<double> plain_emissions_, plain_values_;
  /// The exponents that plain scores are relative to, and how many bits emissions may move them.
  std::array<double, kLanes> unit_{};
  double bits_ = 0.0;
  std::vector<T> posteriors_, gradients_;
  int32_t first_ = 0, count_ = 0;
  std::array<Scaled, kLanes> total_;
  std::array<T, kLanes> last_scale_{};
};

/// All graphs against all windows. Nothing is kept for gradients but the inputs: windows are short,
/// and running them again costs less than remembering.
class Outer {
 public:
  Outer(const char* op, const std::vector<Graph>& graph_list,
        const std::vector<Graph>& emission_list, WindowShape window, Semiring semiring)
      : op_(op), window_(window), semiring_(semiring) {
    DType dtype = DType::float32;
    for (const Graph& graph : graph_list) {
      graphs.push_back(graph.snapshot());
      dtype = promote(dtype, graph.dtype());
    }
    for (size_t e = 0; e < emission_list.size(); ++e) {
      const Graph& graph = emission_list[e];
      if (!is_emissions(graph))
        fail(op, "the emissions must be dense linear graphs, but element ", e, " is not one");
      emissions.push_back(graph.snapshot());
      views_.push_back(view_emissions(emissions.back()));
      dtype = promote(dtype, graph.dtype());
      first_row_.push_back(num_rows_);
      num_rows_ += num_windows(views_.back());
    }
    require_size(op, "rows", num_rows_);
    is_double_ = dtype == DType::float64;
    if (is_double_)
      doubles_ = std::vector<Kernel<double>>(graphs.size());
    else
      floats_ = std::vector<Kernel<float>>(graphs.size());
    parallel_for(graphs.size(), [&](size_t k) {
      try {
        const auto& form = graphs[k].topology().form(Side::output);
        require(!form->has_epsilon_cycle, op_,
                "epsilon arcs of a graph must not form a cycle, but those of this graph do");
        auto factor = std::make_shared<const Factor>(op_, form, graphs[k].raw_weights());
        if (is_double_)
          fill(doubles_[k], std::move(factor));
        else
          fill(floats_[k], std::move(factor));
      } catch (...) {
        rethrow_for_element(op_, k, graphs.size());
      }
    });
  }

  std::vector<Graph> graphs, emissions;
  int32_t num_rows() const { return static_cast<int32_t>(num_rows_); }

  Weights scores() const {
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

  void add_gradients(const Weights& deltas, std::span<Gradient* const> grads) const {
    const EmissionsGrads to = destinations(grads);
    for (size_t e = 0; e < emissions.size(); ++e)
      if (const EmissionsGrad grad = to.at(e); grad.is_unset) grad.clear(0, views_[e].frames);
    const double* const delta = deltas.view<double>().data();
    std::vector<std::vector<double>> arcs(emissions.size() * graphs.size());
    for (size_t e = 0; e < emissions.size(); ++e)
      for (size_t k = 0; k < graphs.size(); ++k)
        if (grads[k]) arcs[e * graphs.size() + k].resize(static_cast<size_t>(graphs[k].num_arcs()));
    if (semiring_ == Semiring::tropical)
      add_best(delta, to, arcs);
    else if (is_double_)
      differentiate<double>(delta, to, arcs);
    else
      differentiate<float>(delta, to, arcs);
    to.join();
    sum_arcs(arcs, grads);
  }

  /// The derivative of the gradients along `moves`, one per factor; the derivatives of the scores
  /// are added to `slopes`.
  void add_hvps(const Weights& deltas, std::span<const Weights> moves,
                std::span<Gradient* const> grads, Gradient* slopes) const {
    if (semiring_ == Semiring::tropical) {
      if (slopes) add_best_slopes(moves, slopes->sum().fill<double>().data());
      return;
    }
    const EmissionsGrads to = destinations(grads);
    for (size_t e = 0; e < emissions.size(); ++e)
      if (const EmissionsGrad grad = to.at(e); grad.is_unset) grad.clear(0, views_[e].frames);
    const double* const delta = deltas.view<double>().data();
    double* const slope = slopes ? slopes->sum().fill<double>().data() : nullptr;
    std::vector<std::vector<double>> arcs(emissions.size() * graphs.size()), arc_moves;
    for (size_t k = 0; k < graphs.size(); ++k)
      arc_moves.push_back(moves[k] ? moves[k].to_vector() : std::vector<double>());
    parallel_for(emissions.size(), [&](size_t e) {
      const Weights& all = moves[graphs.size() + e];
      const std::vector<double> frame_moves = all ? all.to_vector() : std::vector<double>();
      for (size_t k = 0; k < graphs.size(); ++k) {
        std::vector<double>& arc = arcs[e * graphs.size() + k];
        if (grads[k]) arc.resize(static_cast<size_t>(graphs[k].num_arcs()));
        std::vector<HvpExample> windows;
        std::deque<std::vector<double>> own_moves;
        for (int32_t w = 0; w < num_windows(views_[e]); ++w) {
          const Emissions view = window(e, w);
          std::span<const double> own;
          if (!frame_moves.empty()) {
            own_moves.emplace_back();
            for (int32_t f = 0; f < view.frames; ++f) {
              const auto row = frame_moves.begin() + frame(w, f) * view.labels;
              own_moves.back().insert(own_moves.back().end(), row, row + view.labels);
            }
            own = own_moves.back();
          }
          windows.push_back({view, own, delta[cell(e, w, k)],
                             slice(to.at(e), w * window_.stride, window_.dilation)});
        }
        std::vector<double> moved(windows.size());
        trellis::add_hvps(op_, factor(k), arc_moves[k], windows, arc, moved);
        for (size_t w = 0; slope && w < moved.size(); ++w)
          slope[cell(e, static_cast<int32_t>(w), k)] += moved[w];
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
    const int64_t span = int64_t{window_.size - 1} * window_.dilation + 1;
    return view.frames < span ? 0 : static_cast<int32_t>((view.frames - span) / window_.stride) + 1;
  }
  Emissions window(size_t e, int32_t w) const {
    return slice(views_[e], w * window_.stride, window_size(views_[e]), window_.dilation);
  }
  /// Frame f of window w, as a frame of its example.
  int64_t frame(int32_t w, int32_t f) const {
    return int64_t{w} * window_.stride + int64_t{f} * window_.dilation;
  }

  EmissionsGrads destinations(std::span<Gradient* const> grads) const {
    std::vector<int32_t> labels;
    for (const Emissions& view : views_) labels.push_back(view.labels);
    const auto of_emissions = grads.subspan(graphs.size(), emissions.size());
    return {{of_emissions.begin(), of_emissions.end()}, std::move(labels)};
  }

  void sum_arcs(std::vector<std::vector<double>>& arcs, std::span<Gradient* const> grads) const {
    for (size_t k = 0; k < graphs.size(); ++k) {
      if (!grads[k]) continue;
      std::vector<double> sum(static_cast<size_t>(graphs[k].num_arcs()));
      for (size_t e = 0; e < emissions.size(); ++e) {
        const std::vector<double>& part = arcs[e * graphs.size() + k];
        for (size_t a = 0; a < part.size(); ++a) sum[a] += part[a];
      }
      ArcMap::identity().apply(Weights::from(sum), grads[k]->sum(), 1.0);
    }
  }

  template <class T>
  void fill(Kernel<T>& kernel, std::shared_ptr<const Factor> factor) const {
    const TrellisGraph& form = *factor->form;
    kernel.label.reserve(form.slot.size());
    for (int32_t slot : form.slot) kernel.label.push_back(form.labels[slot]);
    kernel.factor = std::move(factor);
    if (is_short() && semiring_ == Semiring::log) kernel.make_plain(window_.size);
  }
  template <class T>
  const std::vector<Kernel<T>>& kernels() const {
    if constexpr (sizeof(T) == 8)
      return doubles_;
    else
      return floats_;
  }
  const Factor& factor(size_t k) const {
    return is_double_ ? *doubles_[k].factor : *floats_[k].factor;
  }
  int64_t cell(size_t e, int32_t row, size_t k) const {
    return (first_row_[e] + row) * num_columns() + static_cast<int64_t>(k);
  }
  /// Exponents need no care in so few frames.
  bool is_short() const {
    constexpr int32_t kShort = 32;
    return window_.size >= 1 && window_.size <= kShort;
  }

  template <class T>
  void score(double* to) const {
    if (!is_short()) {
      for_each_run<T>(
          [&](auto& run, size_t k, std::span<const Row> rows, std::span<const Emissions> views) {
            run.forward(views, {op_, false, 1});
            for (size_t i = 0; i < rows.size(); ++i)
              to[cell(rows[i].example, rows[i].window, k)] = run.scores[i];
          });
      return;
    }
    for_each_example([&](size_t e) {
      Windows<T> windows(op_, kernels<T>(), views_[e], window_);
      for_each_chunk(e, [&](int32_t first, int32_t count) {
        windows.set_chunk(first, count);
        double scores[kLanes];
        for (size_t k = 0; k < graphs.size(); ++k) {
          windows.score(k, scores);
          for (int32_t l = 0; l < count; ++l) to[cell(e, first + l, k)] = scores[l];
        }
      });
    });
  }

  /// `arcs` has a list per example and graph, empty if not wanted.
  template <class T>
  void differentiate(const double* delta, const EmissionsGrads& to,
                     std::vector<std::vector<double>>& arcs) const {
    if (!is_short()) {
      for_each_run<T>(
          [&](auto& run, size_t k, std::span<const Row> rows, std::span<const Emissions> views) {
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
    for_each_example([&](size_t e) {
      Windows<T> windows(op_, kernels<T>(), views_[e], window_);
      std::vector<TermSums<T>> terms(graphs.size());
      for_each_chunk(e, [&](int32_t first, int32_t count) {
        windows.set_chunk(first, count);
        windows.begin_gradients();
        double scale[kLanes];
        for (size_t k = 0; k < graphs.size(); ++k) {
          for (int32_t l = 0; l < count; ++l) scale[l] = delta[cell(e, first + l, k)];
          windows.add(k, scale, arcs[e * graphs.size() + k].empty() ? nullptr : &terms[k]);
        }
        windows.end_gradients(to.at(e));
      });
      for (size_t k = 0; k < graphs.size(); ++k) {
        const Rows& out = kernels<T>()[k].factor->form->out;
        const auto& [scaled, plain] = terms[k];
        std::vector<double>& arc = arcs[e * graphs.size() + k];
        for (size_t t = 0; t < out.arc.size() && !arc.empty(); ++t) {
          if (out.arc[t] < 0) continue;
          const auto begin = static_cast<std::ptrdiff_t>(t * kLanes);
          double sum = 0.0;
          if (!plain.empty())
            sum = std::accumulate(plain.begin() + begin, plain.begin() + begin + kLanes, 0.0) *
                  kernels<T>()[k].out_weights()[t];
          if (!scaled.empty())
            sum += std::accumulate(scaled.begin() + begin, scaled.begin() + begin + kLanes, 0.0);
          arc[static_cast<size_t>(out.arc[t])] += sum;
        }
      }
    });
  }

  /// Calls f(example, window, graph, best path) for all of them, examples in parallel.
  template <class F>
  void for_each_best(bool with_paths, F f) const {
    for_each_example([&](size_t e) {
      std::vector<Emissions> windows;
      for (int32_t w = 0; w < num_windows(views_[e]); ++w) windows.push_back(window(e, w));
      for (size_t k = 0; k < graphs.size(); ++k) {
        poll_interrupt();
        const std::vector<BestAlignment> found =
            find_best(op_, *factor(k).form, factor(k).weights, windows, with_paths);
        for (size_t w = 0; w < found.size(); ++w) f(e, static_cast<int32_t>(w), k, found[w]);
      }
    });
  }
  /// Calls f(arc, arc of the emissions or -1) for each step of a best path.
  template <class F>
  void for_each_step(size_t e, int32_t w, size_t k, const BestAlignment& best, F f) const {
    const auto label = graphs[k].topology().label(Side::output);
    for (const BestStep& step : best.steps)
      f(static_cast<size_t>(step.arc),
        step.frame < 0 ? -1 : frame(w, step.frame) * views_[e].labels + label[step.arc]);
  }

  void score_best(double* to) const {
    for_each_best(false, [&](size_t e, int32_t w, size_t k, const BestAlignment& best) {
      to[cell(e, w, k)] = best.score;
    });
  }

  /// Adds delta to every arc of the best paths.
  void add_best(const double* delta, const EmissionsGrads& to,
                std::vector<std::vector<double>>& arcs) const {
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

  /// Adds to each slope the sum of `moves` along the best path.
  void add_best_slopes(std::span<const Weights> moves, double* slopes) const {
    std::vector<std::vector<double>> moved;
    for (const Weights& move : moves)
      moved.push_back(move ? move.to_vector() : std::vector<double>());
    for_each_best(true, [&](size_t e, int32_t w, size_t k, const BestAlignment& best) {
      const std::vector<double>&of_arcs = moved[k], &of_frames = moved[graphs.size() + e];
      for_each_step(e, w, k, best, [&](size_t a, int64_t at) {
        if (!of_arcs.empty()) slopes[cell(e, w, k)] += of_arcs[a];
        if (!of_frames.empty() && at >= 0)
          slopes[cell(e, w, k)] += of_frames[static_cast<size_t>(at)];
      });
    });
  }

  struct Row {
    size_t example;
    int32_t window;
  };
  /// Calls f(run, graph, rows, their emissions) for rows that go side by side: the windows of one
  /// example, or whole examples. Those are the work of one thread.
  template <class T, class F>
  void for_each_run(F f) const {
    const size_t together = window_.size == 0 ? kLanes : 1;
    const size_t count = (emissions.size() + together - 1) / together;
    parallel_for(count, [&](size_t i) {
      std::vector<Row> rows;
      for (size_t e = i * together; e < std::min(emissions.size(), (i + 1) * together); ++e)
        for (int32_t w = 0; w < num_windows(views_[e]); ++w) rows.push_back({e, w});
      std::vector<Emissions> windows;
      for (const auto& [e, w] : rows) windows.push_back(window(e, w));
      try {
        for (size_t k = 0; k < graphs.size(); ++k) {
          RowsRun<T, kLanes> run(kernels<T>()[k].factor, kernels<T>()[k].weights());
          for (size_t first = 0; first < rows.size(); first += kLanes) {
            const size_t size = std::min(kLanes, rows.size() - first);
            f(run, k, std::span<const Row>(rows).subspan(first, size),
              std::span<const Emissions>(windows).subspan(first, size));
          }
        }
      } catch (const std::invalid_argument&) {
        rethrow_for_example(i * together, std::min(emissions.size(), (i + 1) * together));
      }
    });
  }
  template <class F>
  void for_each_example(F f) const {
    parallel_for(emissions.size(), [&](size_t e) {
      try {
        f(e);
      } catch (const std::invalid_argument&) {
        rethrow_for_example(e, e + 1);
      }
    });
  }
  template <class F>
  void for_each_chunk(size_t e, F f) const {
    const int32_t count = num_windows(views_[e]);
    for (int32_t first = 0; first < count; first += static_cast<int32_t>(kLanes)) {
      poll_interrupt();
      f(first, std::min<int32_t>(kLanes, count - first));
    }
  }
  /// Throws the current exception again with the example and its frame, instead of that of a
  /// window.
  [[noreturn]] void rethrow_for_example(size_t begin, size_t end) const {
    for (size_t e = begin; e < end; ++e) {
      try {
        for (size_t k = 0; k < graphs.size(); ++k)
          for (int32_t t = 0; t < views_[e].frames; ++t)
            check_emissions(op_, factor(k).form->labels, views_[e], t);
      } catch (const std::invalid_argument&) {
        if (emissions.size() == 1) throw;
        rethrow_for_element(op_, e, emissions.size());
      }
    }
    throw;
  }

  const char* op_;
  WindowShape window_;
  Semiring semiring_;
  std::vector<Emissions> views_;
  std::vector<int64_t> first_row_;
  int64_t num_rows_ = 0;
  bool is_double_ = false;
  std::vector<Kernel<float>> floats_;
  std::vector<Kernel<double>> doubles_;
};

/// Differentiates the gradients below. Inputs: the graphs, the emissions, the delta.
class OuterGradientsRule final : public Rule {
 public:
  OuterGradientsRule(std::shared_ptr<const Outer> outer, Weights delta, std::vector<size_t> outputs)
      : outer_(std::move(outer)), delta_(std::move(delta)), outputs_(std::move(outputs)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }
  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    std::vector<Weights> moves(grads.size() - 1);
    for (size_t k = 0; k < outputs_.size(); ++k) moves[outputs_[k]] = deltas[k];
    outer_->add_hvps(delta_, moves, grads.first(grads.size() - 1), grads.back());
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
  bool takes_strided() const override { return true; }
  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    outer_->add_gradients(deltas[0], grads);
  }
  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    std::vector<Graph> inputs(outer_->graphs), out(wanted.size(), nullptr), outputs;
    inputs.insert(inputs.end(), outer_->emissions.begin(), outer_->emissions.end());
    std::vector<Gradient> grads(wanted.size());
    std::vector<Gradient*> to(wanted.size());
    for (size_t f = 0; f < wanted.size(); ++f) {
      if (!wanted[f]) continue;
      grads[f] = Gradient(inputs[f].num_arcs(), inputs[f].dtype());
      to[f] = &grads[f];
    }
    const Weights delta = deltas[0].weights().cast(DType::float64);
    outer_->add_gradients(delta, to);
    std::vector<size_t> which;
    for (size_t f = 0; f < wanted.size(); ++f) {
      if (!wanted[f]) continue;
      out[f] = Graph(inputs[f].topology_ptr(), grads[f].sum());
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
                   const std::vector<Graph>& emissions, WindowShape window, Semiring semiring) {
  require(window.size >= 0, op, "the window must be 1 frame or more, but it is ", window.size);
  require(window.stride >= 1, op, "the stride must be 1 frame or more, but it is ", window.stride);
  require(window.dilation >= 1, op, "the dilation must be 1 frame or more, but it is ",
          window.dilation);
  require(window.size > 0 || window.dilation == 1, op,
          "a dilation spreads the frames of a window, but there is no window");
  auto outer = std::make_shared<const Outer>(op, graphs, emissions, window, semiring);
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
