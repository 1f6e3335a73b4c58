#pragma once

// Hooks that only tests use: they force one of several code paths, or expose an intermediate
// result. Each is defined in the file that has the state it changes.

#include <cstdint>
#include <string>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad::trellis {

/// Uses the named kernel for every product; raises where it cannot run. An empty name restores the
/// usual choice.
void force_kernel(const std::string& name);

/// Keeps the forward values of every `stride`-th frame. 0 restores the usual choice.
void force_history_stride(int32_t stride);

/// The log of the sum of the posteriors of each frame of a product, before they are normalized.
std::vector<double> frame_scores(const Graph& product);

}  // namespace arcgrad::trellis
