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
      : op_(op), chain_(chain), emissions_(emissions), values_(chain.columns.size()) {
    offsets_.reserve(chain.columns.size());
    for (const int32_t column : chain.columns)
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
  double largest() const { return *std::ranges::max_element(values_); }
  /// The number of emissions that read() returns.
  int32_t num_slots() const { return static_cast<int32_t>(values_.size()); }

  /// The emission of a slot in frame `t`.
  double value(int32_t t, int32_t slot) const {
    return emission(emissions_, t, chain_.columns[static_cast<size_t>(slot)]);
  }

 private:
  template <class E>
  bool copy(const E* row) {
    bool is_good = true;
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<double>(row[offsets_[i]]);
      is_good &= values_[i] < std::numeric_limits<double>::infinity();
    }
    return is_good;
  }

  const char* op_;
  const TokenChain& chain_;
  const Emissions& emissions_;
  std::vector<int64_t> offsets_;
  std::vector<double> values_;
};

}  // namespace arcgrad::trellis
