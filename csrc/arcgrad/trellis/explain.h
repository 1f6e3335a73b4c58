#pragma once

// The public header of the trellis: which kernel computes the score of a product, and how much
// memory scores may keep for their gradients. The functions are defined in plan.cpp and
// kernels/registry.cpp.

#include <cstdint>
#include <string>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad::trellis {

/// How a score is computed. The docstring of `explain` in Python describes each kernel.
enum class Kernel : uint8_t { diagonal, lanes, dense, csr, frames, materialised };
const char* name(Kernel kernel);

/// A kernel, and why it was chosen.
struct Choice {
  Kernel kernel = Kernel::materialised;
  std::string reason;
};
/// The choice for each graph of a list, if the list were scored in one call.
std::vector<Choice> explain(const std::vector<Graph>& graphs);

/// Limits the memory, in bytes, that the scores of one call keep for their gradients. Beyond it
/// they keep only some frames, and the backward pass recomputes the others.
void set_history_limit(int64_t bytes);
int64_t get_history_limit();

}  // namespace arcgrad::trellis
