#pragma once

// The scores of all graphs against all emissions, or against all windows of the emissions.

#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/trellis/outer/window_shape.h"

namespace arcgrad::trellis {

/// The scores of all graphs and all windows: one row per window, one column per graph. Without a
/// window size each example is one window.
Graph outer_scores(const char* op, const std::vector<Graph>& graphs,
                   const std::vector<Graph>& emissions, WindowShape window, Semiring semiring);

}  // namespace arcgrad::trellis
