#pragma once

// The emissions of a chain, frame by frame.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "arcgrad/trellis/align/chain.h"
#include "arcgrad/trellis/emissions.h"

namespace arcgrad::trellis {

/// The emission of a label in frame `t`.
inline double emission(const Emissions& emissions, int32_t t, int32_t label) {
  const int64_t at = int64_t{t} * emissions.row_stride + int64_t{label} * emissions.col_stride;
  return emissions.dtype == DType::float32
             ? static_cast<double>(static_cast<const float*>(emissions.data)[at])
             : static_cast<const double*>(emissions.data)[at];
}

/// Reads the emissions of a frame into an array by slot.
class ChainFrames {
 public:
  ChainFrames(const char* op, const TokenChain& chain, const Emissions& emissions)
      : op_(op), chain_(chain), emissions_(emissions), values_(chain.read_columns.size()) {
    is_whole_ =
        emissions.col_stride == 1 && static_cast<int32_t>(values_.size()) == emissions.labels;
    offsets_.reserve(values_.size());
    for (const int32_t column : chain.read_columns)
      offsets_.push_back(int64_t{column} * emissions.col_stride);
  }

  /// The emissions of frame `t`, until the next call. Throws if one is NaN or +inf.
  const double* read(int32_t t) {
    const int64_t begin = int64_t{t} * emissions_.row_stride;
    const bool is_good = emissions_.dtype == DType::float32
                             ? copy(static_cast<const float*>(emissions_.data) + begin)
                             : copy(static_cast<const double*>(emissions_.data) + begin);
    if (!is_good) check_emissions(op_, chain_.columns, emissions_, t);
    return values_.data();
  }
  /// The largest emission of the frame that was read last.
  double largest() const {
    const bool is_all = values_.size() != chain_.columns.size();
    double most = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < chain_.columns.size(); ++i)
      most = std::max(most, values_[is_all ? static_cast<size_t>(chain_.columns[i]) : i]);
    return most;
  }
  /// The number of emissions that read() returns.
  int32_t num_slots() const { return static_cast<int32_t>(values_.size()); }

  /// The emission of a slot in frame `t`.
  double value(int32_t t, int32_t slot) const {
    return emission(emissions_, t, chain_.read_columns[static_cast<size_t>(slot)]);
  }

 private:
  template <class E>
  bool copy(const E* row) {
    double* const values = values_.data();
    const size_t count = values_.size();
    if (is_whole_)
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>(row[i]);
    else
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>(row[offsets_[i]]);
    int32_t bad = 0;
    for (size_t i = 0; i < count; ++i)
      bad |= values[i] < std::numeric_limits<double>::infinity() ? 0 : 1;
    return bad == 0;
  }

  const char* op_;
  const TokenChain& chain_;
  const Emissions& emissions_;
  std::vector<int64_t> offsets_;
  std::vector<double> values_;
  bool is_whole_;
};

}  // namespace arcgrad::trellis
