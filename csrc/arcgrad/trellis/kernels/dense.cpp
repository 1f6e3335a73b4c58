#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <type_traits>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/kernels/dense_loops.h"
#include "arcgrad/trellis/kernels/kernel.h"

// The recursion in plain numbers, not logarithms. With W the weights between places, e a frame's
// emissions and all largest numbers brought to about 1:
//
//     forward:   u = v' W,  v = 2^shift * (u * e)       2^shift brings the largest of v into [1, 2)
//     backward:  S = sum v * b,  posteriors v * b / S,  f = 2^shift / S * (e * b),  b' = f W^T
//
// so that the sum of v' * b' is 1 again; the posterior of an arc in a frame is v'[s] W[s][d] f[d].
//
// What underflows must not matter. A number lost from v or f takes away from S at most what it
// would have added. With P places, there are two cases:
//
// - All of W is above 0 and spans at most 2^kFull. Then b' and u span at most P * 2^kFull, whatever
//   the emissions are. All numbers below 2^-kFloor among the e, or below 2^-kFlush among the v,
//   have a share of at most P^2 * 2^(2 * kFull - kFloor) or P^2 * 2^(kFull - kFlush) of S. In the
//   last frame this needs scores to the end that are above 0 and span at most 2^kFull too.
// - Else every number of u * e that is not truly 0 must be at least 2^-kSmallest. W spans at most
//   2^kSparse, so no product in u underflows and zeros are true zeros. b is set to 0 where v is;
//   then f = posterior / u is at most 2^kSmallest. A number lost from e * b or f W^T is below the
//   smallest normal one and meets u or v of at most 2 P, where S is 1 and 2^-shift is at least
//   2^-kSmallest.
//
// Emissions that are meant to forbid a label, such as -1e9, would always be too small in the second
// case. They are taken for 0, and the score that comes out must be so high that no path through
// them could have mattered.
//
// All this is decided on the way forward. An example outside these limits is done in double, and if
// that is not enough either, the kernel gives up.

namespace arcgrad::trellis {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
const DenseTable<T>& dense_steps() {
  if constexpr (sizeof(T) == 4)
    return ARCGRAD_LOOPS(dense_float);
  else
    return ARCGRAD_LOOPS(dense_double);
}

int64_t padded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

/// In how many parts to do something that takes `work` multiplications, each on its own thread.
/// What comes out does not depend on it.
size_t num_parts(int64_t work) {
  constexpr int64_t kEnough = 100'000;
  return work < kEnough ? 1 : static_cast<size_t>(get_num_threads());
}

/// Where part `part` of `parts` of `count` begins, as a multiple of `unit`.
int64_t begin_of(size_t part, size_t parts, int64_t count, int64_t unit) {
  const int64_t units = (count + unit - 1) / unit;
  const auto at = units * static_cast<int64_t>(part) / static_cast<int64_t>(parts);
  return std::min(at * unit, count);
}

/// What the matrix products need of a factor.
template <class T>
struct Tables {
  /// W and its transpose in panels, divided by 2^exponent.
  Block<T> forward, backward;
  double exponent = 0.0;
  /// The largest exponent of the scores to the end.
  double end_exponent = 0.0;
  /// Whether the weights span a range that T can hold, and whether small numbers may be dropped in
  /// the middle and in the last frame.
  bool fits = true, is_full = false, has_full_end = false;

  Tables(const Factor& factor, const std::vector<int32_t>& first_arc);
};

template <class T>
Tables<T>::Tables(const Factor& factor, const std::vector<int32_t>& first_arc) {
  using Range = DenseRange<T>;
  const TrellisGraph& form = *factor.form;
  const int64_t count = form.num_emitting, width = padded(count, kDensePad);
  const Rows& out = form.out;
  const DenseTable<T>& steps = dense_steps<T>();
  const double *mantissas = factor.mantissa.data(), *exponents = factor.exponent.data();
  double highest = -kInf, lowest = kInf;
  int64_t alive = 0;
  const auto add = [&](int32_t arc, int64_t arcs) {
    alive += steps.find_range(mantissas + arc, exponents + arc, arcs, &highest, &lowest);
  };
  for (int32_t s = 0; s < form.num_emitting; ++s)
    if (first_arc[s] >= 0)
      add(first_arc[s], count);
    else
      for (int32_t k = out.offset[s]; k < form.middle[s]; ++k) add(out.arc[k], 1);
  if (alive > 0) {
    exponent = highest;
    is_full = alive == count * count && highest - lowest <= Range::kFull;
    fits = highest - lowest <= Range::kSparse;
  }
  double highest_end = -kInf, lowest_end = kInf;
  for (int64_t p = 0; p < count; ++p) {
    highest_end = std::max(highest_end, factor.end[p].exponent);
    lowest_end = std::min(lowest_end, factor.end[p].exponent);
  }
  end_exponent = highest_end;
  has_full_end = lowest_end > -kInf && highest_end - lowest_end <= Range::kFull;
  if (!fits) return;
  forward = Block<T>(width * count);
  backward = Block<T>(width * count);
  // As many rows as a panel of the transpose has columns at a time.
  constexpr int64_t kRows = kPanel<T>;
  const auto fill = [&](int64_t first, const Block<T>& rows) {
    std::fill_n(rows.get(), kRows * width, T{0});
    for (int64_t s = first; s < std::min(first + kRows, count); ++s) {
      T* row = rows.get() + (s - first) * width;
      const auto put = [&](int32_t arc, int64_t arcs, T* to) {
        steps.join(mantissas + arc, exponents + arc, arcs, exponent, to);
      };
      if (first_arc[s] >= 0)
        put(first_arc[s], count, row);
      else
        for (int32_t k = out.offset[s]; k < form.middle[s]; ++k)
          put(out.arc[k], 1, row + out.index[k]);
      for (int64_t d = 0; d < width; d += kPanel<T>)
        std::copy_n(row + d, kPanel<T>, forward.get() + d * count + s * kPanel<T>);
    }
    for (int64_t d = 0; d < count; ++d)
      for (int64_t c = 0; c < kRows; ++c)
        backward[first * count + d * kPanel<T> + c] = rows[c * width + d];
  };
  const size_t parts = num_parts(count * count);
  parallel_for(parts, [&](size_t part) {
    const Block<T> rows = Block<T>(kRows * width);
    const int64_t end = begin_of(part + 1, parts, width, kRows);
    for (int64_t first = begin_of(part, parts, width, kRows); first < end; first += kRows)
      fill(first, rows);
  });
}

/// What run_dense() keeps of a factor between chunks.
struct Cache {
  explicit Cache(const Factor& from);
  template <class T>
  const Tables<T>& tables(const Factor& factor) {
    if constexpr (sizeof(T) == 4) {
      std::call_once(once_float,
                     [&] { in_float = std::make_unique<Tables<float>>(factor, first_arc); });
      return *in_float;
    } else {
      std::call_once(once_double,
                     [&] { in_double = std::make_unique<Tables<double>>(factor, first_arc); });
      return *in_double;
    }
  }

  /// The first arc of each place whose arcs follow each other and lead to all places in order;
  /// else -1.
  std::vector<int32_t> first_arc;
  /// The label of each place, and whether they are consecutive.
  std::vector<int32_t> label;
  bool is_consecutive = true;
  /// The score of each place in the first frame, without its emission, and its logarithm.
  std::vector<Scaled> first;
  std::vector<double> log_first;
  /// The score without any frame.
  Scaled empty;

 private:
  std::once_flag once_float, once_double;
  std::unique_ptr<Tables<float>> in_float;
  std::unique_ptr<Tables<double>> in_double;
};

Scaled times(Scaled a, Scaled b) {
  if (a.is_zero() || b.is_zero()) return {};
  return renormalize(a.mantissa * b.mantissa, a.exponent + b.exponent);
}

/// a / b, which is at most about 1.
double ratio(Scaled a, Scaled b) {
  if (a.is_zero() || b.is_zero()) return 0.0;
  return a.mantissa / b.mantissa * pow2(std::min(a.exponent - b.exponent, 1000.0));
}

Scaled weight_of(const Factor& factor, int32_t arc) {
  return arc < 0 ? Scaled::one() : Scaled{factor.mantissa[arc], factor.exponent[arc]};
}

Cache::Cache(const Factor& from) {
  const TrellisGraph& form = *from.form;
  const auto count = static_cast<size_t>(form.num_emitting);
  label.resize(count);
  for (size_t p = 0; p < count; ++p) {
    label[p] = form.labels[form.slot[p]];
    is_consecutive &= label[p] == label[0] + static_cast<int32_t>(p);
  }
  first_arc.assign(count, -1);
  for (int32_t v = 0; v < form.num_emitting; ++v) {
    const int32_t begin = form.out.offset[v];
    if (form.middle[v] - begin != form.num_emitting) continue;
    const int32_t* const index = form.out.index.data() + begin;
    const int32_t* const arc = form.out.arc.data() + begin;
    int32_t other = 0;
    for (int32_t d = 0; d < form.num_emitting; ++d) other |= (index[d] ^ d) | (arc[d] - d - arc[0]);
    if (other == 0) first_arc[v] = arc[0];
  }
  std::vector<ScaledSum> sums(count);
  for (int32_t v = 0; v < form.num_values; ++v) {
    if (from.begin[v].is_zero()) continue;
    for (int32_t k = form.out.offset[v]; k < form.out.offset[v + 1]; ++k) {
      if (form.out.index[k] >= form.num_emitting) continue;
      const Scaled term = times(from.begin[v], weight_of(from, form.out.arc[k]));
      sums[form.out.index[k]].add(term.mantissa, term.exponent);
    }
  }
  for (const ScaledSum& sum : sums) first.push_back(sum.get());
  log_first.assign(static_cast<size_t>(padded(form.num_emitting, kDensePad)), -kInf);
  for (size_t p = 0; p < count; ++p) log_first[p] = log(first[p]);
  ScaledSum sum;
  for (int32_t v : form.accept) sum.add(from.begin[v].mantissa, from.begin[v].exponent);
  empty = sum.get();
}

/// Copies the emissions of one frame to the places that read them; the rest of `out` becomes -inf.
template <class T>
void read_frame(const Emissions& emissions, int64_t frame, const Cache& cache, int64_t width,
                T* out) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const auto count = static_cast<int64_t>(cache.label.size());
  dispatch(emissions.dtype, [&](auto kind) {
    using From = decltype(kind);
    const From* from = static_cast<const From*>(emissions.data) + frame * emissions.row_stride;
    if (cache.is_consecutive) {
      const int64_t first = cache.label[0];
      const int64_t known = std::clamp<int64_t>(emissions.labels - first, 0, count);
      from += first * emissions.col_stride;
      if (emissions.col_stride == 1)
        for (int64_t p = 0; p < known; ++p) out[p] = static_cast<T>(from[p]);
      else
        for (int64_t p = 0; p < known; ++p) out[p] = static_cast<T>(from[p * emissions.col_stride]);
      for (int64_t p = known; p < count; ++p) out[p] = kNone;
    } else {
      for (int64_t p = 0; p < count; ++p) {
        const int64_t label = cache.label[p];
        out[p] =
            label < emissions.labels ? static_cast<T>(from[label * emissions.col_stride]) : kNone;
      }
    }
  });
  for (int64_t p = count; p < width; ++p) out[p] = kNone;
}

/// Adds v * b * scale for the places in one frame to the gradient of the emissions.
template <class T>
void add_frame(const T* v, const T* b, T scale, const Cache& cache, int64_t width, int64_t frame,
               const EmissionsGrad& grad, T* scratch) {
  const DenseTable<T>& steps = dense_steps<T>();
  const auto count = static_cast<int64_t>(cache.label.size());
  dispatch(grad.dtype, [&](auto kind) {
    using To = decltype(kind);
    To* to = grad.row<To>(frame);
    if (cache.is_consecutive) {
      const int64_t first = cache.label[0];
      const int64_t known = std::clamp<int64_t>(grad.labels - first, 0, count);
      if constexpr (std::is_same_v<T, To>) return steps.add_product(v, b, known, scale, to + first);
    }
    steps.product(v, b, width, scale, scratch);
    for (int64_t p = 0; p < count; ++p)
      if (cache.label[p] < grad.labels) to[cache.label[p]] += static_cast<To>(scratch[p]);
  });
}

/// The sums that the gradients of arcs are made of, over examples.
struct ArcSums {
  /// Posteriors of the places in the first frame and in the last.
  std::vector<double> first, last;
  /// Of the examples without frames.
  double empty = 0.0;
  /// For each pair of places the sum of v * f; times the weight it is the posterior of the arc.
  Block<double> between;
  bool is_empty = true;  // nothing is there yet
  double unit = 1.0;
};

/// The recursion in numbers of type T over some examples.
template <class T>
class Recursion {
 public:
  Recursion(std::shared_ptr<const Factor> factor, Cache& cache, std::vector<Emissions> examples,
            const RunOptions& options);

  /// The score of each example, and whether it is in error because the numbers span too wide a
  /// range.
  const std::vector<double>& scores() const { return scores_; }
  const std::vector<bool>& failed() const { return failed_; }

  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const;
  std::vector<double> frame_scores(size_t example) const;

 private:
  /// v = 2^shift * u * e, with e divided by exp(peak).
  struct Scale {
    int32_t shift;
    double peak;
  };
  /// v and e of the frames after `first` up to `last`, and v of `first` too unless that is 0. Those
  /// of frame t start at row row_of(t) - row_of(first).
  struct Segment {
    int32_t first = 0, last = -1;
    T *v = nullptr, *e = nullptr;
    Block<T> memory;

    void allocate(int64_t size) {
      // In one piece, which malloc is more likely to have at hand without asking for new pages.
      memory = Block<T>(2 * size);
      v = memory.get();
      e = v + size;
    }
  };
  /// What finish() works with.
  struct Scratch {
    explicit Scratch(int64_t rows, int64_t width, int64_t stride)
        : u(Block<T>(rows * stride)),
          e(Block<T>(stride)),
          x(Block<T>(width)),
          wide(Block<double>(2 * width)) {}
    Block<T> u, e, x;
    Block<double> wide;
  };

  int32_t num_rows(int32_t t) const { return rows_[static_cast<size_t>(t)]; }
  /// The row of frame t and row 0 among all frames from 1 on.
  int64_t row_of(int32_t t) const { return offset_[static_cast<size_t>(t)]; }
  int32_t frames(int32_t row) const { return examples_[order_[static_cast<size_t>(row)]].frames; }

  /// Emissions so far below the highest of their frame do not matter to an example whose score is
  /// at least kLowestMean per frame below the highest there could be: with weights of at most 2,
  /// all its (2 P)^frames paths through them together have a share of at most e^-100.
  static constexpr double kLowestMean = -30.0;
  double lowest_emission(int32_t frames) const {
    return (kLowestMean - std::log(2.0 * trellis_graph_.num_emitting)) * frames - 100.0;
  }
  void forward();
  void multiply(int64_t rows, const T* from, const Block<T>& panels, T* to, size_t part = 0,
                size_t parts = 1) const;
  template <class Record>
  void finish(int32_t t, T* after, T* e, Scratch& scratch, Record&& record) const;
  void end_scores(const T* v, T* b, double& exponent) const;
  void fill(Segment& segment, int32_t t) const;
  void backward(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                ArcSums* sums, std::vector<double>* frame_scores) const;

  std::shared_ptr<const Factor> factor_;
  const TrellisGraph& trellis_graph_;
  Cache& cache_;
  const Tables<T>& tables_;
  RunOptions options_;
  std::vector<Emissions> examples_;
  /// Examples by descending length, so that those with a frame t are the first few: row r is
  /// example order_[r], and rows_[t] rows have a frame t.
  std::vector<size_t> order_;
  std::vector<int32_t> rows_;
  std::vector<int64_t> offset_;
  int32_t most_frames_ = 0;
  int64_t width_ = 0, stride_ = 0;

  std::vector<double> scores_;
  std::vector<bool> failed_;
  std::vector<Scale> scales_;
  /// All frames, or v of every so many.
  Segment all_;
  std::vector<Block<T>> kept_;
};

template <class T>
Recursion<T>::Recursion(std::shared_ptr<const Factor> factor, Cache& cache,
                        std::vector<Emissions> examples, const RunOptions& options)
    : factor_(std::move(factor)),
      trellis_graph_(*factor_->form),
      cache_(cache),
      tables_(cache.tables<T>(*factor_)),
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
  // Rows a multiple of 4096 bytes apart would all compete for the same places in the caches.
  stride_ = width_ >= 512 && width_ / kDensePad % 2 == 0 ? width_ + kDensePad : width_;
  for (size_t i = 0; i < examples_.size(); ++i)
    if (examples_[i].frames == 0) scores_[i] = log(cache_.empty);
  if (most_frames_ == 0) return;
  if (tables_.fits)
    forward();
  else
    failed_.assign(examples_.size(), true);
}

/// The product of some rows with a matrix, or the columns of it that are this part's.
template <class T>
void Recursion<T>::multiply(int64_t rows, const T* from, const Block<T>& panels, T* to, size_t part,
                            size_t parts) const {
  const int64_t begin = begin_of(part, parts, width_, kPanel<T>);
  const int64_t end = begin_of(part + 1, parts, width_, kPanel<T>);
  dense_steps<T>().multiply(rows, from, stride_, trellis_graph_.num_emitting,
                            panels.get() + begin * trellis_graph_.num_emitting,
                            (end - begin) / kPanel<T>, to + begin);
}

/// Computes frame t of all rows that have it, from what multiply() left in scratch.u.
template <class T>
template <class Record>
void Recursion<T>::finish(int32_t t, T* after, T* e, Scratch& scratch, Record&& record) const {
  const DenseTable<T>& steps = dense_steps<T>();
  for (int32_t r = 0; r < num_rows(t); ++r) {
    const Emissions& example = examples_[order_[static_cast<size_t>(r)]];
    T* v = after + r * stride_;
    Scale scale{0, 0.0};
    bool is_wide = false, dropped = false;
    const double lowest = lowest_emission(example.frames);
    const bool is_strict = !tables_.is_full || (t == example.frames && !tables_.has_full_end);
    if (t == 1) {
      // In logarithms and double: what the starts give can be far from what the emissions allow.
      double* x = scratch.wide.get();
      double* y = x + width_;
      read_frame(example, 0, cache_, width_, x);
      for (int64_t p = 0; p < width_; ++p) x[p] += cache_.log_first[static_cast<size_t>(p)];
      if (!dense_steps<double>().exponentials(x, width_, lowest, y, &scale.peak, &dropped))
        fail_bad_emission(options_.op, trellis_graph_.labels, example);
      const double smallest = pow2(-DenseRange<T>::kSmallest), flush = pow2(-DenseRange<T>::kFlush);
      for (int64_t p = 0; p < width_; ++p) {
        is_wide |= y[p] > 0.0 && y[p] < smallest;
        v[p] = y[p] < flush ? T{0} : static_cast<T>(y[p]);
      }
    } else {
      T* to = e ? e + r * stride_ : scratch.e.get();
      T peak;
      read_frame(example, t - 1, cache_, width_, scratch.x.get());
      if (!steps.exponentials(scratch.x.get(), width_, static_cast<T>(lowest), to, &peak, &dropped))
        fail_bad_emission(options_.op, trellis_graph_.labels, example);
      scale.peak = static_cast<double>(peak);
      is_wide = !steps.rescale(scratch.u.get() + r * stride_, to, width_, v, &scale.shift);
    }
    if (scale.peak == -kInf) scale.peak = 0.0;
    record(r, scale, is_strict && is_wide, is_strict && dropped);
  }
}

template <class T>
void Recursion<T>::forward() {
  const bool keeps_all = options_.keep && options_.stride <= 1;
  const bool keeps_some = options_.keep && !keeps_all;
  if (options_.keep) scales_.resize(static_cast<size_t>(row_of(most_frames_ + 1)));
  const auto most_rows = static_cast<int64_t>(num_rows(1));
  Block<T> two[2];
  if (keeps_all) {
    all_.last = most_frames_;
    all_.allocate(row_of(most_frames_ + 1) * stride_);
  } else {
    for (auto& buffer : two) buffer = Block<T>(most_rows * stride_);
  }
  Scratch scratch(most_rows, width_, stride_);
  // The logarithm of what v must be multiplied with.
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
      shifts[row] += (t > 1 ? tables_.exponent : 0.0) - scale.shift;
      if (is_wide) fail_row(row);
      if (dropped) has_dropped[row] = true;
    });
    for (int32_t r = num_rows(t + 1); r < num_rows(t); ++r) {
      const auto row = static_cast<size_t>(r);
      double exponent = 0.0;
      T* b = scratch.u.get();  // no longer needed
      end_scores(after + r * stride_, b, exponent);
      const double sum = dense_steps<T>().overlap(after + r * stride_, width_, b);
      const double whole = shifts[row] + exponent;
      // The score compared with a path of the largest weights and emissions everywhere.
      const double relative =
          (whole - (t - 1) * tables_.exponent - tables_.end_exponent) * std::numbers::ln2;
      if (has_dropped[row] && !(sum > 0.0 && relative + std::log(sum) > kLowestMean * t))
        fail_row(row);
      if (!(sum > 0.0)) continue;
      scores_[order_[row]] = peaks[row] + whole * kLn2High + (whole * kLn2Low + std::log(sum));
    }
    if (keeps_some && t % options_.stride == 0 && t < most_frames_) {
      const int64_t size = num_rows(t + 1) * stride_;
      kept_.push_back(Block<T>(size));
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
          multiply(num_rows(static_cast<int32_t>(round) + 1), before, tables_.forward,
                   scratch.u.get(), part, parts);
      },
      [&](size_t round) {
        if (num_failed < most_rows) finish_frame(static_cast<int32_t>(round) + 1);
      });
}

/// b = the scores from places to the end, divided by 2^exponent: about 1 at most where v is not 0.
template <class T>
void Recursion<T>::end_scores(const T* v, T* b, double& exponent) const {
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

/// Makes `segment` the one that has frame t, computing it again.
template <class T>
void Recursion<T>::fill(Segment& segment, int32_t t) const {
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
      multiply(num_rows(k), segment.v + (row_of(k - 1) - from) * stride_, tables_.forward,
               scratch.u.get());
    finish(k, segment.v + to, segment.e + to, scratch, [](int32_t, const Scale&, bool, bool) {});
  }
}

template <class T>
void Recursion<T>::backward(std::span<const double> deltas,
                            std::span<const EmissionsGrad> emissions, ArcSums* sums,
                            std::vector<double>* frame_scores) const {
  const DenseTable<T>& steps = dense_steps<T>();
  // The rows that take part, by descending length as all rows are.
  std::vector<int32_t> active;
  for (int32_t r = 0; r < num_rows(1); ++r) {
    const size_t i = order_[static_cast<size_t>(r)];
    if (deltas[i] != 0.0 && scores_[i] > -kInf && !failed_[i]) active.push_back(r);
  }
  if (active.empty()) return;
  const auto most = static_cast<int64_t>(active.size());
  const auto b = Block<T>(most * stride_), f = Block<T>(most * stride_);
  const auto product = Block<T>(width_);
  const int32_t last = frames(active[0]);
  const size_t parts = num_parts(most * trellis_graph_.num_emitting * width_);
  // v of the frame before and f, of so many frames as make up enough rows.
  Block<T> block_v, block_f;
  std::vector<Block<T>> scratch(sums ? parts : 0);
  int64_t filled = 0;
  bool is_block_full = false;
  if (sums) {
    const int64_t capacity = std::min(kOuterRows, row_of(last + 1)) * stride_;
    block_v = Block<T>(capacity + kDensePad);
    block_f = Block<T>(capacity);
    for (Block<T>& own : scratch) own = Block<T>(capacity + kOuterRows * (kPanel<T> + kOuterPad));
    std::fill_n(block_v.get() + capacity, kDensePad, T{0});
  }
  const auto add_block = [&](size_t part) {
    const int64_t begin = begin_of(part, parts, trellis_graph_.num_emitting, kOuterPad);
    const int64_t end = begin_of(part + 1, parts, trellis_graph_.num_emitting, kOuterPad);
    if (begin < end)
      steps.outer(filled, block_v.get() + begin, block_f.get(), stride_, end - begin, width_,
                  scratch[part].get(), sums->is_empty, sums->between.get() + begin * width_);
  };

  Segment segment;
  double rest = 0.0;  // for the frame scores of one example: log of what b must be multiplied with
  int64_t count = 0;
  const auto count_at = [&](int32_t t) {
    int64_t out = count;
    while (out < most && frames(active[static_cast<size_t>(out)]) >= t) ++out;
    return out;
  };
  const auto finish_frame = [&](int32_t t) {
    if (is_block_full) {
      sums->is_empty = is_block_full = false;
      filled = 0;
    }
    const Segment* at = &all_;
    if (options_.stride > 1) {
      if (t <= segment.first || t > segment.last) fill(segment, t);
      at = &segment;
    }
    const int64_t base = row_of(t) - row_of(at->first);
    const int64_t base_before = t > 1 ? row_of(t - 1) - row_of(at->first) : 0;
    const int64_t continued = count;
    count = count_at(t);
    for (int64_t k = 0; k < count; ++k) {
      const int32_t r = active[static_cast<size_t>(k)];
      const size_t i = order_[static_cast<size_t>(r)];
      const T* v = at->v + (base + r) * stride_;
      T* after = b.get() + k * stride_;
      const bool is_last = k >= continued;
      if (is_last) {
        double exponent;
        end_scores(v, after, exponent);
        rest = exponent * std::numbers::ln2;
      }
      const double sum = steps.overlap(v, width_, after);
      const Scale& scale = scales_[static_cast<size_t>(row_of(t) + r)];
      if (frame_scores) (*frame_scores)[static_cast<size_t>(t) - 1] = rest + std::log(sum);
      const T posterior = static_cast<T>(deltas[i] / sum);
      if (!frame_scores && emissions[i].data)
        add_frame(v, after, posterior, cache_, width_, t - 1, emissions[i], product.get());
      if (sums && (t == 1 || is_last)) {
        steps.product(v, after, width_, posterior, product.get());
        for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p) {
          if (t == 1) sums->first[static_cast<size_t>(p)] += static_cast<double>(product[p]);
          if (is_last) sums->last[static_cast<size_t>(p)] += static_cast<double>(product[p]);
        }
      }
      if (t == 1) continue;
      // A power of 2, so that no rounding adds up over the frames.
      const int power = std::ilogb(sum);
      const double pull = std::ldexp(1.0, scale.shift - power);
      T* before = f.get() + k * stride_;
      steps.product(at->e + (base + r) * stride_, after, width_, static_cast<T>(pull), before);
      if (frame_scores) rest += tables_.exponent * std::numbers::ln2 + scale.peak - std::log(pull);
      if (!sums) continue;
      const T share = static_cast<T>(std::ldexp(deltas[i] / sums->unit / sum, power));
      T* to = block_f.get() + (filled + k) * stride_;
      for (int64_t p = 0; p < width_; ++p) to[p] = before[p] * share;
      std::copy_n(at->v + (base_before + r) * stride_, width_,
                  block_v.get() + (filled + k) * stride_);
    }
    if (!sums || t == 1) return;
    filled += count;
    is_block_full = t == 2 || filled + count_at(t - 1) > kOuterRows;
  };
  parallel_rounds(
      static_cast<size_t>(last), parts,
      [&](size_t round, size_t part) {
        if (round % 64 == 0) poll_interrupt();
        if (round == 0) return;
        if (is_block_full) add_block(part);
        multiply(count, f.get(), tables_.backward, b.get(), part, parts);
      },
      [&](size_t round) { finish_frame(last - static_cast<int32_t>(round)); });
}

template <class T>
void Recursion<T>::add_gradients(std::span<const double> deltas,
                                 std::span<const EmissionsGrad> emissions,
                                 std::span<double> arcs) const {
  if (arcs.empty()) return backward(deltas, emissions, nullptr, nullptr);
  const TrellisGraph& form = trellis_graph_;
  const Factor& factor = *factor_;
  ArcSums sums;
  sums.first.resize(static_cast<size_t>(form.num_emitting));
  sums.last.resize(static_cast<size_t>(form.num_emitting));
  const int64_t size = padded(form.num_emitting, kOuterPad) * width_;
  sums.between = Block<double>(size);
  double largest = 0.0;
  for (size_t i = 0; i < examples_.size(); ++i) {
    if (failed_[i] || scores_[i] == -kInf) continue;
    largest = std::max(largest, std::abs(deltas[i]));
    if (examples_[i].frames == 0) sums.empty += deltas[i];
  }
  // A power of 2, so that it does not matter which one.
  if (largest > 0.0 && largest < kInf) sums.unit = std::ldexp(1.0, std::ilogb(largest));
  backward(deltas, emissions, &sums, nullptr);

  auto add_to = [&](int32_t arc, double value) {
    if (arc >= 0) arcs[static_cast<size_t>(arc)] += value;
  };
  for (int32_t v = 0; v < form.num_values; ++v) {
    if (factor.begin[v].is_zero()) continue;
    for (int32_t k = form.out.offset[v]; k < form.middle[v]; ++k) {
      const int32_t to = form.out.index[k], arc = form.out.arc[k];
      add_to(arc, sums.first[static_cast<size_t>(to)] *
                      ratio(times(factor.begin[v], weight_of(factor, arc)),
                            cache_.first[static_cast<size_t>(to)]));
    }
  }
  const auto add_row = [&](int32_t v) {
    const double* const between = sums.between.get() + v * width_;
    const auto add_between = [&](int32_t arc, int32_t to) {
      arcs[static_cast<size_t>(arc)] += between[to] * sums.unit * factor.mantissa[arc] *
                                        pow2(factor.exponent[arc] - tables_.exponent);
    };
    if (const int32_t arc = cache_.first_arc[v]; arc >= 0)
      for (int32_t d = 0; d < form.num_emitting; ++d) add_between(arc + d, d);
    else
      for (int32_t k = form.out.offset[v]; k < form.middle[v]; ++k)
        add_between(form.out.arc[k], form.out.index[k]);
  };
  if (!sums.is_empty) {
    const size_t parts = num_parts(form.num_emitting * width_);
    parallel_for(parts, [&](size_t part) {
      const int64_t end = begin_of(part + 1, parts, form.num_emitting, 1);
      for (int64_t v = begin_of(part, parts, form.num_emitting, 1); v < end; ++v)
        add_row(static_cast<int32_t>(v));
    });
  }
  // After the last frame the posterior of a value is shared by acceptance and the epsilon arcs to
  // sums, which are in topological order.
  std::vector<double> last = std::move(sums.last);
  last.resize(static_cast<size_t>(form.num_values), 0.0);
  for (int32_t v = 0; v < form.num_values; ++v)
    for (int32_t k = form.middle[v]; k < form.out.offset[v + 1]; ++k) {
      const int32_t to = form.out.index[k], arc = form.out.arc[k];
      const Scaled onwards = times(weight_of(factor, arc), factor.end[to]);
      const double share = last[static_cast<size_t>(v)] * ratio(onwards, factor.end[v]);
      last[static_cast<size_t>(to)] += share;
      const double empty = sums.empty * ratio(times(factor.begin[v], onwards), cache_.empty);
      add_to(arc, share + empty);
    }
}

template <class T>
std::vector<double> Recursion<T>::frame_scores(size_t example) const {
  const auto count = static_cast<size_t>(examples_[example].frames);
  std::vector<double> out(count, -kInf);
  if (count == 0 || scores_[example] == -kInf) return out;
  std::vector<double> deltas(examples_.size(), 0.0);
  deltas[example] = 1.0;
  backward(deltas, {}, nullptr, &out);
  // So far only what is behind each frame; add what is before.
  const auto row = static_cast<int64_t>(std::ranges::find(order_, example) - order_.begin());
  double before = 0.0;
  for (size_t t = 1; t <= count; ++t) {
    const Scale& scale = scales_[static_cast<size_t>(row_of(static_cast<int32_t>(t)) + row)];
    before += scale.peak - scale.shift * std::numbers::ln2;
    if (t > 1) before += tables_.exponent * std::numbers::ln2;
    out[t - 1] += before;
  }
  return out;
}

/// The examples done in float and those done in double.
std::shared_ptr<Cache> cache_of(const Factor& factor) {
  std::call_once(factor.dense_once, [&] { factor.dense = std::make_shared<Cache>(factor); });
  return std::static_pointer_cast<Cache>(factor.dense);
}

class DenseRun : public Run {
 public:
  DenseRun(std::shared_ptr<const Factor> factor, std::span<const Emissions> examples,
           const RunOptions& options);
  bool has_failed() const { return has_failed_; }

  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const override;
  std::vector<double> frame_scores(size_t i) const override;

 private:
  template <class T>
  struct Part {
    std::vector<size_t> examples;
    std::unique_ptr<Recursion<T>> recursion;

    void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                       std::span<double> arcs) const {
      if (!recursion) return;
      std::vector<double> own_deltas;
      std::vector<EmissionsGrad> own_emissions;
      for (size_t i : examples) {
        own_deltas.push_back(deltas[i]);
        own_emissions.push_back(emissions[i]);
      }
      recursion->add_gradients(own_deltas, own_emissions, arcs);
    }
  };

  bool has_failed_ = false;
  std::shared_ptr<Cache> cache_;
  Part<float> narrow_;
  Part<double> wide_;
};

DenseRun::DenseRun(std::shared_ptr<const Factor> factor, std::span<const Emissions> examples,
                   const RunOptions& options) {
  cache_ = cache_of(*factor);
  scores.resize(examples.size());
  auto pick = [&](const std::vector<size_t>& which) {
    std::vector<Emissions> out;
    for (size_t i : which) out.push_back(examples[i]);
    return out;
  };
  for (size_t i = 0; i < examples.size(); ++i) {
    const bool is_narrow = promote(factor->weights.dtype(), examples[i].dtype) == DType::float32;
    (is_narrow ? narrow_.examples : wide_.examples).push_back(i);
  }
  if (!narrow_.examples.empty()) {
    narrow_.recursion =
        std::make_unique<Recursion<float>>(factor, *cache_, pick(narrow_.examples), options);
    const Recursion<float>& done = *narrow_.recursion;
    bool is_needed = false;
    for (size_t k = 0; k < narrow_.examples.size(); ++k) {
      scores[narrow_.examples[k]] = done.scores()[k];
      is_needed |= !done.failed()[k];
      if (done.failed()[k]) wide_.examples.push_back(narrow_.examples[k]);
    }
    if (!is_needed) narrow_ = {};
  }
  if (!wide_.examples.empty()) {
    wide_.recursion =
        std::make_unique<Recursion<double>>(factor, *cache_, pick(wide_.examples), options);
    const Recursion<double>& done = *wide_.recursion;
    for (size_t k = 0; k < wide_.examples.size(); ++k) {
      scores[wide_.examples[k]] = done.scores()[k];
      has_failed_ |= done.failed()[k];
    }
  }
}

void DenseRun::add_gradients(std::span<const double> deltas,
                             std::span<const EmissionsGrad> emissions,
                             std::span<double> arcs) const {
  narrow_.add_gradients(deltas, emissions, arcs);
  wide_.add_gradients(deltas, emissions, arcs);
}

std::vector<double> DenseRun::frame_scores(size_t i) const {
  // An example in both parts counts in double.
  const auto wide = std::ranges::find(wide_.examples, i);
  if (wide != wide_.examples.end())
    return wide_.recursion->frame_scores(static_cast<size_t>(wide - wide_.examples.begin()));
  const auto narrow = std::ranges::find(narrow_.examples, i);
  return narrow_.recursion->frame_scores(static_cast<size_t>(narrow - narrow_.examples.begin()));
}

}  // namespace

void prepare_dense(const Factor& factor, DType emissions) {
  dispatch(promote(factor.weights.dtype(), emissions),
           [&](auto kind) { cache_of(factor)->tables<decltype(kind)>(factor); });
}

std::unique_ptr<Run> run_dense(std::shared_ptr<const Factor> factor,
                               std::span<const Emissions> examples, const RunOptions& options) {
  auto run = std::make_unique<DenseRun>(std::move(factor), examples, options);
  if (run->has_failed()) return nullptr;
  return run;
}

}  // namespace arcgrad::trellis
