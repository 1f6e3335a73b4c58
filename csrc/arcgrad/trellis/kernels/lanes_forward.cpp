// The forward pass of the `lanes` and `csr` kernels. lanes.h explains the algorithm.

#include <algorithm>
#include <limits>

#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/kernels/lanes.h"

namespace arcgrad::trellis {
namespace {

/// Thread-local memory for the emissions of two frames.
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

template <class T, int W>
void RowsRun<T, W>::FrameValues::reserve(size_t count) {
  if (count <= capacity) return;
  mantissa = AlignedBuffer<T>(static_cast<int64_t>(count));
  exponent = AlignedBuffer<Q>(static_cast<int64_t>(count));
  capacity = count;
}

template <class T, int W>
Scores<T> RowsRun<T, W>::values(int32_t t, RowsSegment& segment) const {
  const size_t size = frame_size();
  const auto at = [&](int32_t u) {
    return u % stride_ == 0 ? history_.at(static_cast<size_t>(u / stride_) * size)
                            : segment.frames.at(static_cast<size_t>(u % stride_ - 1) * size);
  };
  if (t % stride_ != 0 && segment.index != t / stride_) {
    segment.index = t / stride_;
    segment.frames.reserve((static_cast<size_t>(stride_) - 1) * size);
    const int32_t first = segment.index * stride_;
    run_frames(first + 1, std::min(first + stride_ - 1, frames_), at,
               [&](int32_t u) { rebase(u, at(u), nullptr); });
  }
  return at(t);
}

template <class T, int W>
States RowsRun<T, W>::slots_of(size_t part) const {
  // The loops convert 8 labels at a time.
  const auto begin_of = [&](size_t k) {
    const auto begin =
        int64_t{shape_.num_slots} * static_cast<int64_t>(k) / static_cast<int64_t>(parts_);
    return k == parts_ ? shape_.num_slots : static_cast<int32_t>(begin / 8 * 8);
  };
  return {begin_of(part), begin_of(part + 1)};
}

template <class T, int W>
void RowsRun<T, W>::split(int32_t t, States slots, Scores<T> out) const {
  const T* row[W];
  int64_t stride[W];
  int32_t count[W];
  // Emissions of another type than the recursion are converted here.
  static thread_local std::vector<T> converted;
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  size_t width = 0;
  for (const Emissions& e : examples_)
    if (sizeof(T) == 8 && e.dtype == DType::float32) width += static_cast<size_t>(e.labels);
  if (converted.size() < width) converted.resize(width);
  T* next = converted.data();
  for (int l = 0; l < W; ++l) {
    const bool is_active =
        static_cast<size_t>(l) < examples_.size() && t <= examples_[l].frames && t > 0;
    count[l] = is_active ? count_[l] - slots.begin : 0;
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
      for (int32_t s = slots.begin; s < std::min(slots.end, count_[l]); ++s)
        copy[trellis_graph.labels[s]] = from[trellis_graph.labels[s] * e.col_stride];
      row[l] = copy;
      stride[l] = 1;
    }
  }
  const int64_t offset = int64_t{slots.begin} * W;
  if (!loops_->split(shape_.slots(slots.begin, slots.end - slots.begin), row, stride, count,
                     {out.mantissa + offset, out.exponent + offset}))
    return;
  for (size_t l = 0; l < examples_.size(); ++l)
    if (t <= examples_[l].frames) check_emissions(op_, trellis_graph.labels, examples_[l], t - 1);
}

template <class T, int W>
template <class At, class Done>
void RowsRun<T, W>::run_frames(int32_t first, int32_t last, const At& at, const Done& done) const {
  if (first > last) return;
  const size_t num_slots = static_cast<size_t>(shape_.num_slots) * W;
  const Scores<T> memory = scratch<T>(2 * num_slots);
  const auto emissions = [&](int32_t t) -> Scores<T> {
    const size_t offset = static_cast<size_t>(t % 2) * num_slots;
    return {memory.mantissa + offset, memory.exponent + offset};
  };
  const auto run = [&](int32_t t, States states) {
    if (states.begin < states.end)
      loops_->forward(shape_, states, in_, emissions(t), at(t - 1), at(t));
  };
  const size_t num_stages = stages_.size();
  const auto frame_of = [&](size_t round) {
    return first + static_cast<int32_t>(round / num_stages);
  };
  split(first, {0, shape_.num_slots}, emissions(first));
  parallel_rounds(
      static_cast<size_t>(last - first + 1) * num_stages, parts_,
      [&](size_t round, size_t part) {
        const int32_t t = frame_of(round);
        if (round % num_stages == 0) {
          if (t % kFramesPerRebase == 0) poll_interrupt();
          if (t < last) split(t + 1, slots_of(part), emissions(t + 1));
        }
        run(t, stages_[round % num_stages].part(part));
      },
      [&](size_t round) {
        const int32_t t = frame_of(round);
        run(t, stages_[round % num_stages].rest);
        if (round % num_stages + 1 == num_stages) done(t);
      });
}

template <class T, int W>
void RowsRun<T, W>::rebase(int32_t t, Scores<T> values, int64_t* base) const {
  if (t % kFramesPerRebase != 0) return;
  Q shift[W];
  loops_->rebase(shape_.num_values, values, shift);
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
    if (t > 0) sum.add(static_cast<double>(mantissa[l]), static_cast<double>(exponent[l]));
    total_[l] = t > 0 ? sum.get() : factor_->empty;
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

  const auto at = [&](int32_t t) {
    return t % stride_ == 0 ? history_.at(static_cast<size_t>(t / stride_) * size)
                            : rolling_.at(static_cast<size_t>(t & 1) * size);
  };
  const Scores<T> begin = at(0);
  for (size_t v = 0; v < static_cast<size_t>(shape_.num_values); ++v) {
    std::fill_n(begin.mantissa + v * W, W, weights_->begin_mantissa[v]);
    std::fill_n(begin.exponent + v * W, W, weights_->begin_exponent[v]);
  }
  finish(0, begin, base_.data());
  run_frames(1, frames_, at, [&](int32_t t) {
    int64_t* base = base_.data();
    if (options.keep) {
      base += static_cast<size_t>(t) * W;
      std::copy_n(base - W, W, base);
    }
    rebase(t, at(t), base);
    finish(t, at(t), base);
  });
}

#define ARCGRAD_INSTANTIATE(T, W)                                          \
  template Scores<T> RowsRun<T, W>::values(int32_t, RowsSegment&) const;   \
  template States RowsRun<T, W>::slots_of(size_t) const;                   \
  template void RowsRun<T, W>::split(int32_t, States, Scores<T>) const;    \
  template void RowsRun<T, W>::rebase(int32_t, Scores<T>, int64_t*) const; \
  template void RowsRun<T, W>::forward(std::span<const Emissions>, const RunOptions&);
ARCGRAD_INSTANTIATE(float, 8)
ARCGRAD_INSTANTIATE(double, 8)
ARCGRAD_INSTANTIATE(double, 1)
#undef ARCGRAD_INSTANTIATE

}  // namespace arcgrad::trellis
