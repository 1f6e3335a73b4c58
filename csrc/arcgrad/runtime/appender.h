#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/stream_copy.h"

namespace arcgrad {

/// Sets several columns from their first entries on, as many of each at a time; past the caches if
/// the columns are large.
class Appender {
 public:
  /// The columns are as long as what is to come, and two more.
  explicit Appender(std::vector<Column*> columns)
      : columns_(std::move(columns)),
        is_streamed_(columns_[0]->size() * sizeof(int32_t) >= kStreamed) {}

  /// Gets ready for `num` entries of each column, and for two after them that do not count: so
  /// entries can be written before it is known whether they do.
  void prepare(size_t num) {
    is_staged_ = is_streamed_ && num <= kMost;
    if (!is_staged_) flush(num_staged_);
  }
  /// Where the next entries of a column are to be written.
  int32_t* next(size_t column) {
    return is_staged_ ? stage_[column] + num_staged_ : columns_[column]->data() + size_;
  }
  /// Takes over the `num` entries that were written, no more than was asked for.
  void advance(size_t num) {
    if (!is_staged_) {
      size_ += num;
      return;
    }
    num_staged_ += num;
    // The rest of a cache line waits for the others.
    if (num_staged_ > kMost) flush(num_staged_ - (size_ + num_staged_) % kLine);
  }
  /// Writes what is left, and cuts the columns to their length.
  void finish() {
    flush(num_staged_);
    finish_stream();
    for (Column* column : columns_) column->resize(size_);
  }

 private:
  static constexpr size_t kMaxColumns = 6, kMost = 384, kLine = 64 / sizeof(int32_t);

  void flush(size_t num) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      stream(stage_[c], columns_[c]->data() + size_, num * sizeof(int32_t));
      std::copy(stage_[c] + num, stage_[c] + num_staged_, stage_[c]);
    }
    size_ += num;
    num_staged_ -= num;
  }

  std::vector<Column*> columns_;
  bool is_streamed_, is_staged_ = false;
  size_t size_ = 0, num_staged_ = 0;
  alignas(64) int32_t stage_[kMaxColumns][2 * kMost + kLine];
};

}  // namespace arcgrad
