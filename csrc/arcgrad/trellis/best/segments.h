#pragma once

// Keeps the rows of a recursion in segments, so that a traceback needs only O(sqrt(frames)) rows.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/parallel.h"

namespace arcgrad::trellis {

/// The rows of a recursion over frames, numbered by frames left: row `left` is computed from row
/// `left - 1`.
///
/// Only the rows of one segment of `stride` frames are in memory. To go back, the first row of each
/// segment is kept, and the others of a segment are computed again. With a stride of sqrt(frames)
/// this needs 2 * sqrt(frames) rows and computes each row at most twice.
template <class V>
class Segments {
 public:
  Segments(int32_t frames, int64_t row_size, int32_t stride, bool goes_back)
      : frames_(frames),
        stride_(stride),
        row_size_(row_size),
        rows_((stride + int64_t{1}) * row_size) {
    if (goes_back && stride < frames)
      firsts_ = AlignedBuffer<V>((frames / stride + int64_t{1}) * row_size);
  }

  /// The row with `left` frames left, which must be in the current segment.
  V* row(int32_t left) const { return rows_.get() + (left - begin_) * row_size_; }
  /// The number of frames left of the first row of the current segment.
  int32_t begin() const { return begin_; }

  /// Computes all rows after the first, which the caller has set, by advance(left, row before,
  /// row). Stops if that returns false.
  template <class Advance>
  bool make(const Advance& advance) {
    while (true) {
      if (firsts_.get()) std::copy_n(rows_.get(), row_size_, first());
      if (!fill(advance)) return false;
      if (begin_ + stride_ >= frames_) return true;
      std::copy_n(row(begin_ + stride_), row_size_, rows_.get());
      begin_ += stride_;
    }
  }

  /// Computes the previous segment again; false if the current one is the first.
  template <class Advance>
  bool go_back(const Advance& advance) {
    if (begin_ == 0) return false;
    begin_ -= stride_;
    std::copy_n(first(), row_size_, rows_.get());
    return fill(advance);
  }

 private:
  /// Frames between two checks for an interrupt by the user.
  static constexpr int32_t kPollEvery = 64;

  V* first() const { return firsts_.get() + begin_ / stride_ * row_size_; }

  template <class Advance>
  bool fill(const Advance& advance) const {
    const int32_t end = std::min(begin_ + stride_, frames_);
    for (int32_t left = begin_ + 1; left <= end; ++left) {
      if (left % kPollEvery == 0) poll_interrupt();
      if (!advance(left, row(left - 1), row(left))) return false;
    }
    return true;
  }

  int32_t frames_, stride_, begin_ = 0;
  int64_t row_size_;
  AlignedBuffer<V> rows_, firsts_;
};

/// The stride of the segments: all frames if their rows fit into `max_bytes`, else sqrt(frames).
inline int32_t segment_stride(int32_t frames, int64_t row_bytes, int64_t max_bytes) {
  const int32_t all = std::max(frames, 1);
  if ((frames + int64_t{1}) * row_bytes <= max_bytes) return all;
  return std::max(1, static_cast<int32_t>(std::ceil(std::sqrt(frames))));
}

}  // namespace arcgrad::trellis
