#pragma once

// The parts of the `dense` kernel. dense.cpp explains the algorithm and lists the files.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/fork_safe_once.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/kernels/dense_loops.h"
#include "arcgrad/trellis/kernels/kernel.h"

namespace arcgrad::trellis::dense {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
const DenseTable<T>& dense_loops() {
  if constexpr (sizeof(T) == 4)
    return ARCGRAD_LOOPS(dense_float);
  else
    return ARCGRAD_LOOPS(dense_double);
}

/// `count` rounded up to a multiple of `to`.
inline int64_t padded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

/// The number of parts, one per thread, into which to cut `work` multiplications. It does not
/// affect results.
inline size_t num_parts(int64_t work) {
  constexpr int64_t kEnough = 100'000;
  return work < kEnough ? 1 : static_cast<size_t>(get_num_threads());
}

/// The begin of a part of the range [0, count), a multiple of `unit`.
inline int64_t begin_of(size_t part, size_t parts, int64_t count, int64_t unit) {
  const int64_t units = (count + unit - 1) / unit;
  const auto at = units * static_cast<int64_t>(part) / static_cast<int64_t>(parts);
  return std::min(at * unit, count);
}

inline Scaled times(Scaled a, Scaled b) {
  if (a.is_zero() || b.is_zero()) return {};
  return renormalize(a.mantissa * b.mantissa, a.exponent + b.exponent);
}

/// a / b, which is at most about 1.
inline double ratio(Scaled a, Scaled b) {
  if (a.is_zero() || b.is_zero()) return 0.0;
  return a.mantissa / b.mantissa * pow2(std::min(a.exponent - b.exponent, 1000.0));
}

/// The weights of a graph as the matrix products read them.
template <class T>
struct PackedWeights {
  /// W and its transpose in panels, divided by 2^exponent.
  AlignedBuffer<T> forward, backward;
  double exponent = 0.0;
  /// The largest exponent of the scores to the end.
  double end_exponent = 0.0;
  /// Whether T can represent the range of the weights. Whether the matrix has no zeros and its
  /// range is at most DenseRange::kFull; the same for the scores to the end.
  bool fits = true, is_full = false, has_full_end = false;

  PackedWeights(const Factor& factor, const std::vector<int32_t>& first_arc);
};

/// The tables of a graph that all its chunks read.
struct DenseFactor {
  explicit DenseFactor(const Factor& from);
  template <class T>
  const PackedWeights<T>& packed(const Factor& factor) {
    if constexpr (sizeof(T) == 4) {
      once_float.call(
          [&] { in_float = std::make_unique<PackedWeights<float>>(factor, first_arc); });
      return *in_float;
    } else {
      once_double.call(
          [&] { in_double = std::make_unique<PackedWeights<double>>(factor, first_arc); });
      return *in_double;
    }
  }

  /// For a state whose consecutive arcs lead to all states in order, the first of them; else -1.
  std::vector<int32_t> first_arc;
  /// The label of each state, and whether they are consecutive.
  std::vector<int32_t> label;
  bool is_consecutive = true;
  /// The score of each state in the first frame, without its emission, and its logarithm.
  std::vector<Scaled> first;
  std::vector<double> log_first;

 private:
  ForkSafeOnce once_float, once_double;
  std::unique_ptr<PackedWeights<float>> in_float;
  std::unique_ptr<PackedWeights<double>> in_double;
};

/// Sums over examples and frames from which the gradients of arcs are computed.
struct DenseArcSums {
  /// Posteriors of states in the first frame and in the last.
  std::vector<double> first, last;
  /// The sum of deltas of the examples without frames.
  double empty = 0.0;
  /// For each pair of states the sum of v' * f / unit. Times the weight, it is the gradient of the
  /// arc.
  AlignedBuffer<double> between;
  bool is_empty = true;  // `between` is uninitialized
  double unit = 1.0;     // the power of 2 by which deltas are divided
};

/// The forward-backward algorithm in numbers of type T over some examples.
template <class T>
class DenseRecursion {
 public:
  DenseRecursion(std::shared_ptr<const Factor> factor, DenseFactor& shared,
                 std::vector<Emissions> examples, const RunOptions& options);

  /// The score of each example, and whether it failed because its numbers exceed the range of T.
  const std::vector<double>& scores() const { return scores_; }
  const std::vector<bool>& failed() const { return failed_; }

  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const;
  std::vector<double> frame_scores(size_t example) const;

 private:
  /// How a frame was scaled: v = 2^shift * u * e, with e divided by exp(peak).
  struct Scale {
    int32_t shift;
    double peak;
  };
  /// v and e of the frames first + 1 to `last`, and v of frame `first` unless that is 0. Frame t
  /// starts at row row_of(t) - row_of(first).
  struct DenseSegment {
    int32_t first = 0, last = -1;
    T *v = nullptr, *e = nullptr;
    AlignedBuffer<T> memory;

    void allocate(int64_t size) {
      // One allocation, which malloc is more likely to serve without new pages.
      memory = AlignedBuffer<T>(2 * size);
      v = memory.get();
      e = v + size;
    }
  };
  /// The working memory of finish().
  struct Scratch {
    explicit Scratch(int64_t rows, int64_t width, int64_t stride)
        : u(AlignedBuffer<T>(rows * stride)),
          e(AlignedBuffer<T>(stride)),
          x(AlignedBuffer<T>(width)),
          wide(AlignedBuffer<double>(2 * width)) {}
    AlignedBuffer<T> u, e, x;
    AlignedBuffer<double> wide;
  };

  int32_t num_rows(int32_t t) const { return rows_[static_cast<size_t>(t)]; }
  /// The number of rows of the frames 1 to t - 1.
  int64_t row_of(int32_t t) const { return offset_[static_cast<size_t>(t)]; }
  int32_t frames(int32_t row) const { return examples_[order_[static_cast<size_t>(row)]].frames; }

  /// If an emission minus the largest of its frame is below lowest_emission(), it is treated as
  /// -inf. This is exact enough if the score minus the largest possible score is at least
  /// kLowestMean per frame: with weights of at most 2, all (2 P)^frames paths through such
  /// emissions add at most e^-100 of it.
  static constexpr double kLowestMean = -30.0;
  double lowest_emission(int32_t frames) const {
    return (kLowestMean - std::log(2.0 * trellis_graph_.num_emitting)) * frames - 100.0;
  }
  void forward();
  void multiply(int64_t rows, const T* from, const AlignedBuffer<T>& panels, T* to, size_t part = 0,
                size_t parts = 1) const;
  template <class Record>
  void finish(int32_t t, T* after, T* e, Scratch& scratch, Record&& record) const;
  void end_scores(const T* v, T* b, double& exponent) const;
  void fill(DenseSegment& segment, int32_t t) const;
  void backward(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                DenseArcSums* sums, std::vector<double>* frame_scores) const;

  std::shared_ptr<const Factor> factor_;
  const TrellisGraph& trellis_graph_;
  DenseFactor& shared_;
  const PackedWeights<T>& packed_;
  RunOptions options_;
  std::vector<Emissions> examples_;
  /// Examples by descending length: row r is example order_[r], and the first rows_[t] rows have a
  /// frame t.
  std::vector<size_t> order_;
  std::vector<int32_t> rows_;
  std::vector<int64_t> offset_;
  int32_t most_frames_ = 0;
  int64_t width_ = 0, stride_ = 0;

  std::vector<double> scores_;
  std::vector<bool> failed_;
  std::vector<Scale> scales_;
  /// All frames, or v of every stride-th frame.
  DenseSegment all_;
  std::vector<AlignedBuffer<T>> kept_;
};

}  // namespace arcgrad::trellis::dense
