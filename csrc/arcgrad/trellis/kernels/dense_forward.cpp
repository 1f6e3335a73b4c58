// The forward pass of the `dense` kernel, and the proof that its range of numbers is enough.
// dense.cpp explains the algorithm.

#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

#include "arcgrad/trellis/kernels/dense.h"

namespace arcgrad::trellis::dense {

// Why underflow does not change results. DenseRange in dense_loops.h has the constants. If a number
// is lost from v or f, S loses at most the terms that it would have added. With P states, there are
// two cases:
//
// - All of W is above 0 and spans at most 2^kFull. Then b' and u span at most P * 2^kFull for any
//   emissions. All numbers below 2^-kFloor among the e, or below 2^-kFlush among the v, add at most
//   P^2 * 2^(2 * kFull - kFloor) or P^2 * 2^(kFull - kFlush) of S. In the last frame this requires
//   that the scores to the end are above 0 and span at most 2^kFull, too.
// - Otherwise every number of u * e that is not exactly 0 must be at least 2^-kSmallest. W spans at
//   most 2^kSparse, so no product in u underflows and zeros are exact. b is set to 0 where v is 0;
//   then f = posterior / u is at most 2^kSmallest. A number lost from e * b or f W^T is below the
//   smallest normal number, and is multiplied by u or v of at most 2 P, where S is 1 and 2^-shift
//   is at least 2^-kSmallest.
//
// Emissions that forbid a label, such as -1e9, would always be too small in the second case. They
// are treated as 0, and the score must then be so high that no path through them can matter.
//
// The forward pass checks all of this. An example outside the limits of float is computed in
// double; outside the limits of double, another kernel computes the chunk.

namespace {

/// Reads the emission of each state in one frame; pads `out` with -inf.
template <class T>
void read_frame(const Emissions& emissions, int64_t frame, const DenseFactor& shared, int64_t width,
                T* out) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const auto count = static_cast<int64_t>(shared.label.size());
  dispatch(emissions.dtype, [&](auto kind) {
    using From = decltype(kind);
    const From* from = static_cast<const From*>(emissions.data) + frame * emissions.row_stride;
    if (shared.is_consecutive) {
      const int64_t first = shared.label[0];
      const int64_t known = std::clamp<int64_t>(emissions.labels - first, 0, count);
      from += first * emissions.col_stride;
      if (emissions.col_stride == 1)
        for (int64_t p = 0; p < known; ++p) out[p] = static_cast<T>(from[p]);
      else
        for (int64_t p = 0; p < known; ++p) out[p] = static_cast<T>(from[p * emissions.col_stride]);
      for (int64_t p = known; p < count; ++p) out[p] = kNone;
    } else {
      for (int64_t p = 0; p < count; ++p) {
        const int64_t label = shared.label[p];
        out[p] =
            label < emissions.labels ? static_cast<T>(from[label * emissions.col_stride]) : kNone;
      }
    }
  });
  for (int64_t p = count; p < width; ++p) out[p] = kNone;
}

}  // namespace

template <class T>
DenseRecursion<T>::DenseRecursion(std::shared_ptr<const Factor> factor, DenseFactor& shared,
                                  std::vector<Emissions> examples, const RunOptions& options)
    : factor_(std::move(factor)),
      trellis_graph_(*factor_->trellis_graph),
      shared_(shared),
      packed_(shared.packed<T>(*factor_)),
      options_(options),
      examples_(std::move(examples)),
      order_(examples_.size()),
      scores_(examples_.size(), -kInf),
      failed_(examples_.size()) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::stable_sort(order_, std::greater<>(), [&](size_t i) { return examples_[i].frames; });
  most_frames_ = order_.empty() ? 0 : frames(0);
  rows_.assign(static_cast<size_t>(most_frames_) + 2, 0);
  for (const Emissions& example : examples_) ++rows_[static_cast<size_t>(example.frames)];
  for (int32_t t = most_frames_; t-- > 0;)
    rows_[static_cast<size_t>(t)] += rows_[static_cast<size_t>(t) + 1];
  offset_.assign(rows_.size(), 0);
  for (size_t t = 2; t < rows_.size(); ++t) offset_[t] = offset_[t - 1] + rows_[t - 1];
  width_ = padded(trellis_graph_.num_emitting, kDensePad);
  // Rows that are a multiple of 4096 bytes apart would map to the same cache sets.
  stride_ = width_ >= 512 && width_ / kDensePad % 2 == 0 ? width_ + kDensePad : width_;
  for (size_t i = 0; i < examples_.size(); ++i)
    if (examples_[i].frames == 0) scores_[i] = log(factor_->empty);
  if (most_frames_ == 0) return;
  if (packed_.fits)
    forward();
  else
    failed_.assign(examples_.size(), true);
}

/// Multiplies some rows by a matrix; computes one of several parts of the columns.
template <class T>
void DenseRecursion<T>::multiply(int64_t rows, const T* from, const AlignedBuffer<T>& panels, T* to,
                                 size_t part, size_t parts) const {
  const int64_t begin = begin_of(part, parts, width_, kPanel<T>);
  const int64_t end = begin_of(part + 1, parts, width_, kPanel<T>);
  dense_loops<T>().multiply(rows, from, stride_, trellis_graph_.num_emitting,
                            panels.get() + begin * trellis_graph_.num_emitting,
                            (end - begin) / kPanel<T>, to + begin);
}

/// Computes v of frame t from scratch.u, the result of multiply(), for all rows that have the
/// frame.
template <class T>
template <class Record>
void DenseRecursion<T>::finish(int32_t t, T* after, T* e, Scratch& scratch, Record&& record) const {
  const DenseTable<T>& loops = dense_loops<T>();
  for (int32_t r = 0; r < num_rows(t); ++r) {
    const Emissions& example = examples_[order_[static_cast<size_t>(r)]];
    T* v = after + r * stride_;
    Scale scale{0, 0.0};
    bool is_wide = false, dropped = false;
    const double lowest = lowest_emission(example.frames);
    const bool is_strict = !packed_.is_full || (t == example.frames && !packed_.has_full_end);
    if (t == 1) {
      // In logarithms and double, because the states with the largest start scores may have very
      // small emissions.
      double* x = scratch.wide.get();
      double* y = x + width_;
      read_frame(example, 0, shared_, width_, x);
      for (int64_t p = 0; p < width_; ++p) x[p] += shared_.log_first[static_cast<size_t>(p)];
      if (!dense_loops<double>().exponentials(x, width_, lowest, y, &scale.peak, &dropped))
        fail_bad_emission(options_.op, trellis_graph_.labels, example);
      const double smallest = pow2(-DenseRange<T>::kSmallest), flush = pow2(-DenseRange<T>::kFlush);
      for (int64_t p = 0; p < width_; ++p) {
        is_wide |= y[p] > 0.0 && y[p] < smallest;
        v[p] = y[p] < flush ? T{0} : static_cast<T>(y[p]);
      }
    } else {
      T* to = e ? e + r * stride_ : scratch.e.get();
      T peak;
      read_frame(example, t - 1, shared_, width_, scratch.x.get());
      if (!loops.exponentials(scratch.x.get(), width_, static_cast<T>(lowest), to, &peak, &dropped))
        fail_bad_emission(options_.op, trellis_graph_.labels, example);
      scale.peak = static_cast<double>(peak);
      is_wide = !loops.rescale(scratch.u.get() + r * stride_, to, width_, v, &scale.shift);
    }
    if (scale.peak == -kInf) scale.peak = 0.0;
    record(r, scale, is_strict && is_wide, is_strict && dropped);
  }
}

template <class T>
void DenseRecursion<T>::forward() {
  const bool keeps_all = options_.keep && options_.stride <= 1;
  const bool keeps_some = options_.keep && !keeps_all;
  if (options_.keep) scales_.resize(static_cast<size_t>(row_of(most_frames_ + 1)));
  const auto most_rows = static_cast<int64_t>(num_rows(1));
  AlignedBuffer<T> two[2];
  if (keeps_all) {
    all_.last = most_frames_;
    all_.allocate(row_of(most_frames_ + 1) * stride_);
  } else {
    for (auto& buffer : two) buffer = AlignedBuffer<T>(most_rows * stride_);
  }
  Scratch scratch(most_rows, width_, stride_);
  // peaks + shifts * log(2): the logarithm of the scale of v.
  std::vector<double> peaks(static_cast<size_t>(most_rows)), shifts(peaks.size());
  std::vector<bool> has_dropped(peaks.size());
  int64_t num_failed = 0;
  auto fail_row = [&](size_t row) {
    num_failed += !failed_[order_[row]];
    failed_[order_[row]] = true;
  };
  const T* before = nullptr;
  const auto finish_frame = [&](int32_t t) {
    T* after = keeps_all ? all_.v + row_of(t) * stride_ : two[t % 2].get();
    T* e = keeps_all ? all_.e + row_of(t) * stride_ : nullptr;
    finish(t, after, e, scratch, [&](int32_t r, const Scale& scale, bool is_wide, bool dropped) {
      const auto row = static_cast<size_t>(r);
      if (options_.keep) scales_[static_cast<size_t>(row_of(t)) + row] = scale;
      peaks[row] += scale.peak;
      shifts[row] += (t > 1 ? packed_.exponent : 0.0) - scale.shift;
      if (is_wide) fail_row(row);
      if (dropped) has_dropped[row] = true;
    });
    for (int32_t r = num_rows(t + 1); r < num_rows(t); ++r) {
      const auto row = static_cast<size_t>(r);
      double exponent = 0.0;
      T* b = scratch.u.get();  // reuses the memory of u
      end_scores(after + r * stride_, b, exponent);
      const double sum = dense_loops<T>().overlap(after + r * stride_, width_, b);
      const double whole = shifts[row] + exponent;
      // The score relative to a path of the largest weights and emissions in all frames.
      const double relative =
          (whole - (t - 1) * packed_.exponent - packed_.end_exponent) * std::numbers::ln2;
      if (has_dropped[row] && !(sum > 0.0 && relative + std::log(sum) > kLowestMean * t))
        fail_row(row);
      if (!(sum > 0.0)) continue;
      scores_[order_[row]] = peaks[row] + whole * kLn2High + (whole * kLn2Low + std::log(sum));
    }
    if (keeps_some && t % options_.stride == 0 && t < most_frames_) {
      const int64_t size = num_rows(t + 1) * stride_;
      kept_.push_back(AlignedBuffer<T>(size));
      std::copy_n(after, size, kept_.back().get());
    }
    before = after;
  };
  const size_t parts = num_parts(most_rows * trellis_graph_.num_emitting * width_);
  parallel_rounds(
      static_cast<size_t>(most_frames_), parts,
      [&](size_t round, size_t part) {
        if (round % 64 == 0) poll_interrupt();
        if (round > 0 && num_failed < most_rows)
          multiply(num_rows(static_cast<int32_t>(round) + 1), before, packed_.forward,
                   scratch.u.get(), part, parts);
      },
      [&](size_t round) {
        if (num_failed < most_rows) finish_frame(static_cast<int32_t>(round) + 1);
      });
}

/// Sets b to the scores of ending a path in each state, divided by 2^exponent. The largest b where
/// v is not 0 is about 1.
template <class T>
void DenseRecursion<T>::end_scores(const T* v, T* b, double& exponent) const {
  exponent = -kInf;
  for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p)
    if (v[p] > 0) exponent = std::max(exponent, factor_->end[p].exponent);
  std::fill_n(b, width_, T{0});
  if (exponent == -kInf) return;
  for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p) {
    const Scaled& end = factor_->end[p];
    if (v[p] > 0 && !end.is_zero())
      b[p] = static_cast<T>(end.mantissa * pow2(end.exponent - exponent));
  }
}

/// Recomputes the segment that contains frame t.
template <class T>
void DenseRecursion<T>::fill(DenseSegment& segment, int32_t t) const {
  const int32_t stride = options_.stride, first = (t - 1) / stride * stride;
  segment.first = first;
  segment.last = std::min(first + stride, most_frames_);
  const int64_t from = row_of(first), size = row_of(segment.last + 1) - from;
  // Row 0 of frame `first` is row 0 of the segment.
  segment.allocate(size * stride_);
  if (first > 0)
    std::copy_n(kept_[static_cast<size_t>(first / stride) - 1].get(), num_rows(first + 1) * stride_,
                segment.v);
  Scratch scratch(num_rows(first + 1), width_, stride_);
  for (int32_t k = first + 1; k <= segment.last; ++k) {
    const int64_t to = (row_of(k) - from) * stride_;
    if (k > 1)
      multiply(num_rows(k), segment.v + (row_of(k - 1) - from) * stride_, packed_.forward,
               scratch.u.get());
    finish(k, segment.v + to, segment.e + to, scratch, [](int32_t, const Scale&, bool, bool) {});
  }
}

#define ARCGRAD_INSTANTIATE(T)                                                              \
  template DenseRecursion<T>::DenseRecursion(std::shared_ptr<const Factor>, DenseFactor&,   \
                                             std::vector<Emissions>, const RunOptions&);    \
  template void DenseRecursion<T>::multiply(int64_t, const T*, const AlignedBuffer<T>&, T*, \
                                            size_t, size_t) const;                          \
  template void DenseRecursion<T>::end_scores(const T*, T*, double&) const;                 \
  template void DenseRecursion<T>::fill(DenseSegment&, int32_t) const;
ARCGRAD_INSTANTIATE(float)
ARCGRAD_INSTANTIATE(double)
#undef ARCGRAD_INSTANTIATE

}  // namespace arcgrad::trellis::dense
