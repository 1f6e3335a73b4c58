#pragma once

// One number for the two labels of an arc, so that algorithms on acceptors apply to transducers.

#include <cstdint>
#include <span>
#include <utility>

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// The code of each arc: 0 for epsilon on both sides, else ascending with the pair of labels.
class LabelCodes {
 public:
  explicit LabelCodes(const Topology& topology);

  uint32_t operator[](int32_t arc) const {
    return codes_.empty() ? static_cast<uint32_t>(ilabel_[arc] + 1) : codes_[arc];
  }
  int32_t ilabel(uint32_t code) const {
    return codes_.empty() ? static_cast<int32_t>(code) - 1 : pairs_[code].first;
  }
  int32_t olabel(uint32_t code) const {
    return codes_.empty() ? static_cast<int32_t>(code) - 1 : pairs_[code].second;
  }
  /// Every code is less than this.
  int64_t size() const;

 private:
  std::span<const int32_t> ilabel_;
  Buffer<uint32_t> codes_;                     // empty for an acceptor: the label plus one
  Buffer<std::pair<int32_t, int32_t>> pairs_;  // of each code
};

}  // namespace arcgrad
