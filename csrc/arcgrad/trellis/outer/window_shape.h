#pragma once

// How windows are cut from the frames of an example.

#include <cstdint>

namespace arcgrad::trellis {

/// The size of windows, and the distances between them and between their frames.
struct WindowShape {
  int32_t size = 0;      // in frames; 0 for all of them
  int32_t stride = 1;    // from one window to the next
  int32_t dilation = 1;  // from one frame of a window to the next

  /// The number of windows of an example.
  int32_t count(int32_t frames) const {
    if (size == 0) return 1;
    const int64_t span = int64_t{size - 1} * dilation + 1;
    return frames < span ? 0 : static_cast<int32_t>((frames - span) / stride) + 1;
  }
  /// Frame f of window w, as a frame of the example.
  int64_t frame(int32_t w, int32_t f) const { return int64_t{w} * stride + int64_t{f} * dilation; }
};

}  // namespace arcgrad::trellis
