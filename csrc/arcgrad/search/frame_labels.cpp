#include "arcgrad/search/frame_labels.h"

#include <algorithm>
#include <limits>

#include "arcgrad/runtime/error.h"

namespace arcgrad {

void FrameLabels::read(std::span<const float> scores, const DecoderOptions& options,
                       int64_t frame) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  row_.assign(scores.begin(), scores.end());
  labels_.clear();
  float best = kNone;
  for (size_t d = 0; d < row_.size(); ++d) {
    // False for NaN too.
    require(row_[d] < std::numeric_limits<float>::infinity(), "decode", "the score of label ", d,
            " at frame ", frame, " must be finite or -inf, but it is ", row_[d]);
    best = std::max(best, row_[d]);
  }
  const double least = static_cast<double>(best) - options.token_beam;
  for (size_t d = 0; d < row_.size(); ++d)
    if (row_[d] >= least && row_[d] > kNone) labels_.push_back({row_[d], static_cast<int32_t>(d)});
  std::ranges::sort(labels_, [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.label < b.label;
  });
  if (static_cast<int64_t>(labels_.size()) > options.max_tokens)
    labels_.resize(static_cast<size_t>(options.max_tokens));
  if (labels_.size() == row_.size()) return;
  std::ranges::fill(row_, kNone);
  for (const Scored& scored : labels_) row_[static_cast<size_t>(scored.label)] = scored.score;
}

}  // namespace arcgrad
