#pragma once

// Scores of all graphs against all emissions, or against all windows of them.

#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad::trellis {

/// How windows are cut from the frames of an example.
struct WindowShape {
  int32_t size = 0;      // in frames; 0 for all of them
  int32_t stride = 1;    // from one window to the next
  int32_t dilation = 1;  // from one frame of a window to the next
};

/// The scores of all graphs and all windows: one row per window, one column per graph. Without a
/// window size each example is one window.
Graph outer_scores(const char* op, const std::vector<Graph>& graphs,
                   const std::vector<Graph>& emissions, WindowShape window, Semiring semiring);

}  // namespace arcgrad::trellis
