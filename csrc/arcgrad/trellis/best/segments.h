#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/parallel.h"

// What the two ways to find best paths (best.cpp, screen.cpp) share.

namespace arcgrad::trellis {

/// Of the arcs on a best path, the one that comes first in the product: epsilon arcs, then by
/// label, then by arc.
class FirstArc {
 public:
  /// A term of an out-row; `slot` is -1 if it consumes no frame.
  void offer(int32_t term, int32_t slot, int32_t arc) {
    if (slot > slot_ || (slot == slot_ && arc > arc_)) return;
    term_ = term;
    slot_ = slot;
    arc_ = arc;
  }
  /// -1 if there was none.
  int32_t term() const { return term_; }
  int32_t arc() const { return arc_; }
  bool takes_frame() const { return slot_ >= 0; }

 private:
  int32_t term_ = -1, slot_ = std::numeric_limits<int32_t>::max(), arc_ = 0;
};

/// Of equally good starts the first counts, but before all a start where the path ends at once.
class BestStart {
 public:
  void offer(double score, int32_t value, bool can_end) {
    if (!(score > score_ || (score == score_ && score == 0.0 && can_end && !can_end_))) return;
    score_ = score;
    value_ = value;
    can_end_ = can_end;
  }
  double score() const { return score_; }
  /// -1 if there is no path.
  int32_t value() const { return value_; }

 private:
  double score_ = kNegInf;
  int32_t value_ = -1;
  bool can_end_ = false;
};

/// Rows of scores, one for each number of frames left, each made from the one before. They are made
/// in segments of `stride` frames; those of one segment are at hand, and to go back, the first row
/// of each is kept.
template <class V>
class Segments {
 public:
  Segments(int32_t frames, int64_t row_size, int32_t stride, bool goes_back)
      : frames_(frames),
        stride_(stride),
        row_size_(row_size),
        rows_((stride + int64_t{1}) * row_size) {
    if (goes_back && stride < frames) firsts_ = Block<V>((frames / stride + int64_t{1}) * row_size);
  }

  /// The row with `left` frames left, which must be of this segment.
  V* row(int32_t left) const { return rows_.get() + (left - begin_) * row_size_; }
  /// The first row of this segment.
  int32_t begin() const { return begin_; }

  /// Makes all rows but the first, which is there: advance(left, row before, row) makes one. Stops
  /// if that is false.
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

  /// Makes the segment before this one again; false if this is the first.
  template <class Advance>
  bool go_back(const Advance& advance) {
    if (begin_ == 0) return false;
    begin_ -= stride_;
    std::copy_n(first(), row_size_, rows_.get());
    return fill(advance);
  }

 private:
  /// Frames between looks at whether the user interrupted.
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
  Block<V> rows_, firsts_;
};

/// The stride of segments of rows that make up at most about `max_bytes`.
inline int32_t segment_stride(int32_t frames, int64_t row_bytes, int64_t max_bytes) {
  const int32_t all = std::max(frames, 1);
  if ((frames + int64_t{1}) * row_bytes <= max_bytes) return all;
  return std::max(1, static_cast<int32_t>(std::ceil(std::sqrt(frames))));
}

}  // namespace arcgrad::trellis
