#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// An array of another library from which leaves take their weights, such as a tensor of emissions.
/// The gradients of its leaves are parts of one buffer, which is the gradient of the array.
struct ExternalArray {
  /// What the array belongs to.
  std::shared_ptr<const void> owner;
  DType dtype = DType::float32;
  /// Each leaf is a matrix of at most so many rows; it may have fewer, and the rest is padding.
  int64_t rows = 0, cols = 0;
  /// From one leaf to the next and from one row to the next, in entries of the gradient.
  int64_t leaf_stride = 0, row_stride = 0;
  /// Where leaves of one row each begin and the last one ends, if they are of different sizes.
  std::vector<int64_t> bounds;
  /// The topologies of the leaves.
  std::vector<TopologyPtr> leaves;

  int64_t size() const {
    return bounds.empty() ? static_cast<int64_t>(leaves.size()) * rows * cols : bounds.back();
  }
  /// Where the gradient of a leaf begins.
  int64_t begin(size_t leaf) const {
    return bounds.empty() ? static_cast<int64_t>(leaf) * leaf_stride : bounds[leaf];
  }
  int64_t num_cols(size_t leaf) const {
    return bounds.empty() ? cols : bounds[leaf + 1] - bounds[leaf];
  }
  /// The rows of a leaf that are no padding.
  int64_t num_rows(size_t leaf) const;
};

/// Leaves with these weights, one per topology of `source`, whose gradients go to it.
std::vector<Graph> make_leaves(const std::shared_ptr<const ExternalArray>& source,
                               std::span<const Weights> weights, bool calc_grad);

}  // namespace arcgrad
