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

  uint32_t operator[](int32_t arc) const { return codes_[arc]; }
  std::span<const uint32_t> of_arcs() const { return codes_; }
  int32_t ilabel(uint32_t code) const {
    return pairs_.empty() ? static_cast<int32_t>(code - 1) : pairs_[code].first;
  }
  int32_t olabel(uint32_t code) const {
    return pairs_.empty() ? static_cast<int32_t>(code - 1) : pairs_[code].second;
  }

 private:
  Buffer<uint32_t> codes_;
  Buffer<std::pair<int32_t, int32_t>> pairs_;  // of each code; empty: it is the label plus one
};

}  // namespace arcgrad
