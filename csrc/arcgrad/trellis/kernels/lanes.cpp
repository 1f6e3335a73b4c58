// The `lanes` and `csr` kernels over the frames of an example. lanes.h explains the algorithm.

#include "arcgrad/trellis/kernels/lanes.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/runtime/parallel.h"

namespace arcgrad::trellis {
namespace {

/// Exponents grow by less than 2^23 per frame, so 32 bits suffice for this many frames.
constexpr int32_t kFramesPerRebase = 64;
/// Posteriors of arcs are summed in the type of the recursion for this many frames, then in double.
constexpr int32_t kFramesPerFlush = 32;

/// The exponent of an arc of weight -inf: below all others, but its sum with kDead does not
/// overflow.
constexpr int32_t kDeadWeight = -(1 << 29) + (1 << 25);

template <class T>
void fill_terms(const Rows& rows, const Factor& factor, std::vector<T>& mantissa,
                std::vector<Exponent<T>>& exponent) {
  mantissa.resize(rows.index.size());
  exponent.resize(rows.index.size());
  for (size_t k = 0; k < rows.arc.size(); ++k) {
    const int32_t a = rows.arc[k];
    mantissa[k] = a < 0 ? T{1} : static_cast<T>(factor.mantissa[a]);
    exponent[k] = a < 0 ? 0 : static_cast<Exponent<T>>(factor.exponent[a]);
    if (mantissa[k] == T{0}) exponent[k] = kDeadWeight;
  }
}

/// Converts the scores at a boundary, which are the same in all lanes.
template <class T>
void fill_scores(const std::vector<Scaled>& scores, std::vector<T>& mantissa,
                 std::vector<Exponent<T>>& exponent) {
  for (const Scaled& score : scores) {
    T m = static_cast<T>(score.mantissa);
    Exponent<T> q = score.is_zero() ? kDead : static_cast<Exponent<T>>(score.exponent);
    if (m >= T{2}) {  // rounded up
      m /= T{2};
      ++q;
    }
    mantissa.push_back(m);
    exponent.push_back(q);
  }
}

/// Thread-local memory for the emissions of one frame.
template <class T>
Scores<T> scratch(size_t count) {
  static thread_local std::vector<T> mantissa;
  static thread_local std::vector<Exponent<T>> exponent;
  if (mantissa.size() < count) {
    mantissa.resize(count);
    exponent.resize(count);
  }
  return {mantissa.data(), exponent.data()};
}

}  // namespace

template <>
const LanesTable<float>& lanes_loops<float>() {
  return ARCGRAD_LOOPS(lanes8_float);
}
template <>
const LanesTable<double>& lanes_loops<double>() {
  return ARCGRAD_LOOPS(lanes8_double);
}

namespace {

template <class T, int W>
const LanesTable<T>& table() {
  if constexpr (W == 1)
    return ARCGRAD_LOOPS(lanes1_double);
  else
    return lanes_loops<T>();
}

}  // namespace

template <class T>
RowWeights<T>::RowWeights(const Factor& factor) {
  fill_terms(factor.trellis_graph->in(), factor, in_mantissa, in_exponent);
  fill_terms(factor.trellis_graph->out, factor, out_mantissa, out_exponent);
  fill_scores(factor.begin, begin_mantissa, begin_exponent);
  fill_scores(factor.end, end_mantissa, end_exponent);
}

template <class T, int W>
void RowsRun<T, W>::FrameValues::reserve(size_t count) {
  if (count <= capacity) return;
  mantissa = AlignedBuffer<T>(static_cast<int64_t>(count));
  exponent = AlignedBuffer<Q>(static_cast<int64_t>(count));
  capacity = count;
}

template <class T, int W>
RowsRun<T, W>::RowsRun(std::shared_ptr<const Factor> factor,
                       std::shared_ptr<const RowWeights<T>> weights)
    : factor_(std::move(factor)), weights_(std::move(weights)), loops_(&table<T, W>()) {
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  shape_ = {trellis_graph.num_emitting, trellis_graph.num_values,
            static_cast<int32_t>(trellis_graph.labels.size()), trellis_graph.slot.data(),
            trellis_graph.labels.data()};
  const Rows& in = trellis_graph.in();
  in_ = {in.offset.data(), in.index.data(), weights_->in_mantissa.data(),
         weights_->in_exponent.data()};
  out_ = {trellis_graph.out.offset.data(), trellis_graph.out.index.data(),
          weights_->out_mantissa.data(), weights_->out_exponent.data()};
}

template <class T, int W>
Scores<T> RowsRun<T, W>::values(int32_t t, RowsSegment& segment) const {
  const size_t size = frame_size();
  const auto checkpoint = [&](int32_t u) {
    return history_.at(static_cast<size_t>(u / stride_) * size);
  };
  if (t % stride_ == 0) return checkpoint(t);
  const auto between = [&](int32_t u) {
    return segment.frames.at(static_cast<size_t>(u % stride_ - 1) * size);
  };
  if (segment.index != t / stride_) {
    segment.index = t / stride_;
    segment.frames.reserve((static_cast<size_t>(stride_) - 1) * size);
    const int32_t first = segment.index * stride_;
    const int32_t last = std::min(first + stride_ - 1, frames_);
    for (int32_t u = first + 1; u <= last; ++u)
      step(u, u == first + 1 ? checkpoint(first) : between(u - 1), between(u), nullptr);
  }
  return between(t);
}

template <class T, int W>
void RowsRun<T, W>::split(int32_t t, Scores<T> out) const {
  const T* row[W];
  int64_t stride[W];
  int32_t count[W];
  // Emissions of another type than the recursion are converted here.
  static thread_local std::vector<T> converted;
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  const size_t num_slots = trellis_graph.labels.size();
  size_t width = 0;
  for (const Emissions& e : examples_)
    if (sizeof(T) == 8 && e.dtype == DType::float32) width += static_cast<size_t>(e.labels);
  if (converted.size() < width) converted.resize(width);
  T* next = converted.data();
  for (int l = 0; l < W; ++l) {
    const bool is_active =
        static_cast<size_t>(l) < examples_.size() && t <= examples_[l].frames && t > 0;
    count[l] = is_active ? count_[l] : 0;
    stride[l] = 0;
    row[l] = nullptr;
    if (!is_active) continue;
    const Emissions& e = examples_[l];
    stride[l] = e.col_stride;
    if ((e.dtype == DType::float64) == (sizeof(T) == 8)) {
      row[l] = static_cast<const T*>(e.data) + (t - 1) * e.row_stride;
    } else if constexpr (sizeof(T) == 8) {
      // The labels may be sparse, so the copy has the width of the emissions.
      T* const copy = next;
      next += e.labels;
      const auto* from = static_cast<const float*>(e.data) + (t - 1) * e.row_stride;
      for (size_t s = 0; s < num_slots && static_cast<int32_t>(s) < count_[l]; ++s)
        copy[trellis_graph.labels[s]] = from[trellis_graph.labels[s] * e.col_stride];
      row[l] = copy;
      stride[l] = 1;
    }
  }
  if (!loops_->split(shape_, row, stride, count, out)) return;
  for (size_t l = 0; l < examples_.size(); ++l)
    if (t <= examples_[l].frames) check_emissions(op_, trellis_graph.labels, examples_[l], t - 1);
}

template <class T, int W>
void RowsRun<T, W>::step(int32_t t, Scores<T> from, Scores<T> to, int64_t* base) const {
  const Scores<T> emissions = scratch<T>(static_cast<size_t>(shape_.num_slots) * W);
  split(t, emissions);
  loops_->forward(shape_, in_, emissions, from, to);
  if (t % kFramesPerRebase != 0) return;
  Q shift[W];
  loops_->rebase(shape_.num_values, to, shift);
  if (base)
    for (int l = 0; l < W; ++l) base[l] += shift[l];
}

template <class T, int W>
void RowsRun<T, W>::finish(int32_t t, Scores<T> values, const int64_t* base) {
  bool ends = false;
  for (const Emissions& e : examples_) ends |= e.frames == t;
  if (!ends) return;
  T mantissa[W];
  Q exponent[W];
  // After a frame every path is in an emitting state, and the scores to the end include the
  // epsilon arcs. Without frames, the scores of the starts include them.
  if (t > 0)
    loops_->finish(shape_, values, weights_->end_mantissa.data(), weights_->end_exponent.data(),
                   mantissa, exponent);
  for (size_t l = 0; l < examples_.size(); ++l) {
    if (examples_[l].frames != t) continue;
    ScaledSum sum;
    if (t == 0)
      for (int32_t v : factor_->trellis_graph->accept)
        sum.add(factor_->begin[v].mantissa, factor_->begin[v].exponent);
    else
      sum.add(static_cast<double>(mantissa[l]), static_cast<double>(exponent[l]));
    total_[l] = sum.get();
    total_[l].exponent += static_cast<double>(base[l]);
    scores[l] = log(total_[l]);
  }
}

template <class T, int W>
void RowsRun<T, W>::forward(std::span<const Emissions> examples, const RunOptions& options) {
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  op_ = options.op;
  examples_.assign(examples.begin(), examples.end());
  frames_ = 0;
  for (size_t l = 0; l < examples_.size(); ++l) {
    frames_ = std::max(frames_, examples_[l].frames);
    count_[l] =
        static_cast<int32_t>(std::ranges::lower_bound(trellis_graph.labels, examples_[l].labels) -
                             trellis_graph.labels.begin());
  }
  const bool keeps_all = options.keep && options.stride <= 1;
  stride_ = options.keep ? std::max(options.stride, 1) : frames_ + 1;
  const size_t size = frame_size();
  history_.reserve((static_cast<size_t>(frames_ / stride_) + 1) * size);
  if (!keeps_all) rolling_.reserve(2 * size);
  base_.assign(static_cast<size_t>(options.keep ? frames_ + 1 : 1) * W, 0);
  scores.assign(examples_.size(), -std::numeric_limits<double>::infinity());
  total_.fill({});

  Scores<T> from = history_.at(0);
  for (size_t v = 0; v < static_cast<size_t>(shape_.num_values); ++v) {
    std::fill_n(from.mantissa + v * W, W, weights_->begin_mantissa[v]);
    std::fill_n(from.exponent + v * W, W, weights_->begin_exponent[v]);
  }
  finish(0, from, base_.data());
  for (int32_t t = 1; t <= frames_; ++t) {
    if (t % kFramesPerRebase == 0) poll_interrupt();
    const Scores<T> to = t % stride_ == 0 ? history_.at(static_cast<size_t>(t / stride_) * size)
                                          : rolling_.at(static_cast<size_t>(t & 1) * size);
    int64_t* base = base_.data();
    if (options.keep) {
      base += static_cast<size_t>(t) * W;
      std::copy_n(base - W, W, base);
    }
    step(t, from, to, base);
    finish(t, to, base);
    from = to;
  }
}

template <class T, int W>
struct RowsRun<T, W>::Backward {
  std::span<const double> deltas;
  std::span<const EmissionsGrad> emissions;
  std::span<double> arcs;
  std::vector<double>* frame_scores = nullptr;
  size_t frame_scores_of = 0;
  std::array<bool, W> is_wanted{};
  std::array<double, W> last_scale{};  // delta / sum of the last frame
  RowsSegment segment{};
};

template <class T, int W>
void RowsRun<T, W>::add_boundary(Backward& state, int32_t lane) const {
  // The score of paths through the arc from state i to the non-emitting state s is v[i] * w *
  // end[s].
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  const int32_t t = examples_[lane].frames;
  const Scores<T> v = values(t, state.segment);
  const double base = static_cast<double>(base_[static_cast<size_t>(t) * W + lane]);
  for (int32_t i = 0; i < trellis_graph.num_values; ++i)
    for (int32_t k = trellis_graph.middle[i]; k < trellis_graph.out.offset[i + 1]; ++k) {
      const int32_t a = trellis_graph.out.arc[k], s = trellis_graph.out.index[k];
      if (a < 0 || factor_->end[s].is_zero()) continue;
      const size_t at = static_cast<size_t>(i) * W + lane;
      const double m =
          static_cast<double>(v.mantissa[at]) * factor_->mantissa[a] * factor_->end[s].mantissa;
      if (m == 0.0) continue;
      const double q = static_cast<double>(v.exponent[at]) + base + factor_->exponent[a] +
                       factor_->end[s].exponent - total_[lane].exponent;
      state.arcs[a] += m * pow2(std::min(q, 100.0)) * state.last_scale[lane];
    }
}

template <class T, int W>
void RowsRun<T, W>::run_backward(Backward& state) const {
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  const size_t size = frame_size(), num_slots = trellis_graph.labels.size();
  static thread_local std::vector<T> reals;
  static thread_local std::vector<Q> ints;
  static thread_local std::vector<T> terms;
  const size_t num_terms = state.arcs.empty() ? 0 : trellis_graph.out.index.size() * W;
  reals.resize(2 * size + static_cast<size_t>(shape_.num_emitting) * W + num_slots * W);
  ints.resize(2 * size);
  const Scores<T> b{reals.data(), ints.data()}, g{reals.data() + size, ints.data() + size};
  T* const posterior = reals.data() + 2 * size;
  T* const slots = posterior + static_cast<size_t>(shape_.num_emitting) * W;
  terms.assign(num_terms, T{0});
  std::fill_n(b.mantissa, size, T{0});
  std::fill_n(b.exponent, size, Q{kDead});

  std::array<int64_t, W> base{};  // of b
  Q unit[W] = {}, unit_before[W] = {};
  T delta[W] = {};
  for (size_t l = 0; l < examples_.size(); ++l)
    if (state.is_wanted[l]) delta[l] = static_cast<T>(state.deltas[l]);
  auto flush = [&] {
    for (size_t k = 0; k < trellis_graph.out.index.size(); ++k) {
      const int32_t a = trellis_graph.out.arc[k];
      if (a < 0) continue;
      double sum = 0.0;
      for (int l = 0; l < W; ++l) sum += static_cast<double>(terms[k * W + l]);
      state.arcs[a] += sum;
    }
    std::fill(terms.begin(), terms.end(), T{0});
  };
  for (int32_t t = frames_; t >= 1; --t) {
    for (size_t l = 0; l < examples_.size(); ++l)
      if (examples_[l].frames == t && state.is_wanted[l])
        for (size_t v = 0; v < static_cast<size_t>(shape_.num_values); ++v) {
          b.mantissa[v * W + l] = weights_->end_mantissa[v];
          b.exponent[v * W + l] = weights_->end_exponent[v];
        }
    const Scores<T> v = values(t, state.segment), before = values(t - 1, state.segment);
    // values() may use the same scratch memory, so it comes first.
    const Scores<T> emissions = scratch<T>(num_slots * W);
    split(t, emissions);
    // The unit of posteriors changes only near frames where exponents were rebased.
    if (t == frames_ || t % kFramesPerRebase <= 1 || t % kFramesPerRebase == kFramesPerRebase - 1)
      for (int l = 0; l < W; ++l) {
        const double total = total_[l].is_zero() ? 0.0 : total_[l].exponent;
        const auto at = static_cast<size_t>(t) * W + l;
        const double limit = 1 << 30;
        const auto unit_at = [&](int64_t before) {
          const double q = total - static_cast<double>(before + base[l]);
          return static_cast<Q>(std::clamp(q, -limit, limit));
        };
        unit[l] = unit_at(base_[at]);
        unit_before[l] = unit_at(base_[at - W]);
      }
    T sum[W], scale[W];
    loops_->posteriors(shape_, emissions, v, b, unit, posterior, sum, g);
    // The sum is 0 for an example that has ended or has no gradient.
    for (int l = 0; l < W; ++l) scale[l] = sum[l] > T{0} ? delta[l] / sum[l] : T{0};
    for (size_t l = 0; l < examples_.size(); ++l)
      if (t == examples_[l].frames && sum[l] > T{0})
        state.last_scale[l] = state.deltas[l] / static_cast<double>(sum[l]);
    if (state.frame_scores) {
      const size_t l = state.frame_scores_of;
      if (t <= examples_[l].frames)
        (*state.frame_scores)[t - 1] =
            std::log(static_cast<double>(sum[l])) + total_[l].exponent * (kLn2High + kLn2Low);
    }
    if (!state.emissions.empty()) {
      loops_->gather(shape_, posterior, scale, slots);
      T* row[W] = {};
      for (size_t l = 0; l < examples_.size(); ++l) {
        const EmissionsGrad& grad = state.emissions[l];
        if (grad.is_unset && t <= examples_[l].frames) grad.clear(t - 1, 1);
        if (!grad.data || scale[l] == T{0}) continue;
        if ((grad.dtype == DType::float64) == (sizeof(T) == 8)) {
          row[l] = grad.row<T>(t - 1);
          continue;
        }
        dispatch(grad.dtype, [&](auto kind) {
          using G = decltype(kind);
          G* const to = grad.row<G>(t - 1);
          for (int32_t s = 0; s < count_[l]; ++s)
            to[trellis_graph.labels[s]] += static_cast<G>(slots[static_cast<size_t>(s) * W + l]);
        });
      }
      loops_->scatter(shape_, slots, row, count_.data());
    }
    loops_->backward(shape_, out_, g, b, before.mantissa, before.exponent, unit_before, scale,
                     num_terms ? terms.data() : nullptr);
    if (t % kFramesPerRebase == 0) {
      Q shift[W];
      loops_->rebase(shape_.num_values, b, shift);
      for (int l = 0; l < W; ++l) base[l] += shift[l];
      poll_interrupt();
    }
    if (num_terms && t % kFramesPerFlush == 0) flush();
  }
  if (num_terms) flush();
  if (!state.arcs.empty())
    for (size_t l = 0; l < examples_.size(); ++l) {
      if (!state.is_wanted[l]) continue;
      if (examples_[l].frames == 0) state.last_scale[l] = state.deltas[l] / total_[l].mantissa;
      add_boundary(state, static_cast<int32_t>(l));
    }
}

template <class T, int W>
void RowsRun<T, W>::add_gradients(std::span<const double> deltas,
                                  std::span<const EmissionsGrad> emissions,
                                  std::span<double> arcs) const {
  Backward state;
  state.deltas = deltas;
  state.emissions = emissions;
  state.arcs = arcs;
  bool any = false;
  for (size_t l = 0; l < examples_.size(); ++l)
    any |= state.is_wanted[l] = !total_[l].is_zero() && deltas[l] != 0.0;
  if (any) run_backward(state);
}

template <class T, int W>
std::vector<double> RowsRun<T, W>::frame_scores(size_t i) const {
  std::vector<double> out(static_cast<size_t>(examples_[i].frames));
  const std::vector<double> ones(examples_.size(), 1.0);
  Backward state;
  state.deltas = ones;
  state.frame_scores = &out;
  state.frame_scores_of = i;
  for (size_t l = 0; l < examples_.size(); ++l) state.is_wanted[l] = !total_[l].is_zero();
  run_backward(state);
  return out;
}

template struct RowWeights<float>;
template struct RowWeights<double>;
template class RowsRun<float, 8>;
template class RowsRun<double, 8>;
template class RowsRun<double, 1>;

namespace {

DType type_of(const Factor& factor, std::span<const Emissions> examples) {
  DType dtype = factor.weights.dtype();
  for (const Emissions& e : examples) dtype = promote(dtype, e.dtype);
  return dtype;
}

}  // namespace

std::unique_ptr<Run> run_csr(std::shared_ptr<const Factor> factor,
                             std::span<const Emissions> example, const RunOptions& options) {
  auto weights = std::make_shared<RowWeights<double>>(*factor);
  auto run = std::make_unique<RowsRun<double, 1>>(std::move(factor), std::move(weights));
  run->forward(example, options);
  return run;
}

std::unique_ptr<Run> run_lanes(std::shared_ptr<const Factor> factor,
                               std::span<const Emissions> examples, const RunOptions& options) {
  return dispatch(type_of(*factor, examples), [&](auto kind) -> std::unique_ptr<Run> {
    using T = decltype(kind);
    auto weights = std::make_shared<RowWeights<T>>(*factor);
    auto run = std::make_unique<RowsRun<T, 8>>(std::move(factor), std::move(weights));
    run->forward(examples, options);
    return run;
  });
}

}  // namespace arcgrad::trellis
