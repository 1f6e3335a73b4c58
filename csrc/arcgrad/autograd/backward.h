#pragma once

// Gradients with respect to external arrays, for the bridges to other libraries.

#include <memory>
#include <span>
#include <vector>

#include "arcgrad/autograd/autograd.h"
#include "arcgrad/autograd/external_array.h"

namespace arcgrad {

/// The external arrays that `graphs` depend on, in a fixed order.
std::vector<std::shared_ptr<const ExternalArray>> find_sources(std::span<const Graph> graphs);
/// The gradients of `outputs` with respect to external arrays: for each a buffer of `size()`
/// entries.
std::vector<Weights> grad(std::span<const Graph> outputs,
                          std::span<const std::shared_ptr<const ExternalArray>> sources,
                          std::span<const Graph> seeds);
/// The same as graphs on the tape, one per leaf of each array.
std::vector<std::vector<Graph>> record_grad(
    std::span<const Graph> outputs, std::span<const std::shared_ptr<const ExternalArray>> sources,
    std::span<const Graph> seeds);

}  // namespace arcgrad
