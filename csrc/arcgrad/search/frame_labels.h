#pragma once

// The labels that a beam search reads at a frame.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/search/beam_decoder.h"

namespace arcgrad {

class FrameLabels {
 public:
  struct Scored {
    float score;
    int32_t label;
  };

  /// Chooses labels by the options. Throws if a score is NaN or +inf.
  void read(std::span<const float> scores, const DecoderOptions& options, int64_t frame);
  /// -inf for labels that are not read.
  float score(int32_t label) const { return row_[static_cast<size_t>(label)]; }
  /// The labels that are read.
  std::span<const Scored> best_first() const { return labels_; }
  int64_t num_unread() const { return static_cast<int64_t>(row_.size() - labels_.size()); }

 private:
  std::vector<float> row_;
  std::vector<Scored> labels_;
};

}  // namespace arcgrad
