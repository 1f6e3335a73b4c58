#pragma once

// Leaves whose weights are parts of an array of another library, such as a tensor of emissions.
//
// The weights are borrowed, not copied. The gradients of all leaves are written to one buffer,
// which is then the gradient of the array in the layout that the other library expects.
//
// Invariant: leaf i owns the entries from begin(i), num_rows(i) rows of num_cols(i) columns. If the
// leaves have the same shape, they are matrices with strides; else they are parts of one row, and
// `bounds` separates them. Rows from num_rows(i) to `rows` are padding with gradient 0.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// An array of another library from which leaves borrow their weights.
struct ExternalArray {
  /// Keeps the array alive.
  std::shared_ptr<const void> owner;
  DType dtype = DType::float32;
  /// The shape of a leaf. A leaf may have fewer rows, and the rest is padding.
  int64_t rows = 0, cols = 0;
  /// The strides of leaves and of rows in the gradient, in entries.
  int64_t leaf_stride = 0, row_stride = 0;
  /// If the leaves have different sizes: leaf i is the range [bounds[i], bounds[i + 1]).
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
  /// The rows of a leaf without padding.
  int64_t num_rows(size_t leaf) const;
};

/// One leaf per topology of `source`, with these weights. Their gradients go to `source`.
std::vector<Graph> make_leaves(const std::shared_ptr<const ExternalArray>& source,
                               std::span<const Weights> weights, bool calc_grad);

}  // namespace arcgrad
