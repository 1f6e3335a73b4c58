#pragma once

// The emissions of a product as a strided matrix (frames x labels), and the matrix of their
// gradient. Every recursion of this room reads the first and adds to the second.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/autograd/rule.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/core/weights.h"

namespace arcgrad::trellis {

/// The emissions of one example: entry (t, c) is at t * row_stride + c * col_stride.
struct Emissions {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int32_t frames = 0, labels = 0;
  int64_t row_stride = 0, col_stride = 0;
};

/// The weights of a dense linear graph as a matrix.
Emissions view_emissions(const Graph& graph);

/// Throws if the emission of one of `labels` (ascending) at frame `t` is NaN or +inf.
void check_emissions(const char* op, std::span<const int32_t> labels, const Emissions& emissions,
                     int32_t t);
/// Throws for the first frame that has such an emission; one must exist.
[[noreturn]] void fail_bad_emission(const char* op, std::span<const int32_t> labels,
                                    const Emissions& emissions);

struct EmissionsGrad;

/// Initial values of gradient rows: posteriors of a second recursion over the same emissions. Used
/// for losses that are the difference of two scores.
class InitialRows {
 public:
  virtual ~InitialRows() = default;
  /// Sets `count` rows of `grad` from `first` on to `scale` times the posteriors of `example`.
  virtual void set_rows(size_t example, double scale, const EmissionsGrad& grad, int64_t first,
                        int64_t count) const = 0;
};

/// The destination of the gradient of an example's emissions: entry (t, c) is at t * row_stride +
/// c. If `data` is null, the gradient is not wanted.
struct EmissionsGrad {
  void* data = nullptr;
  DType dtype = DType::float32;
  int32_t labels = 0;
  int64_t row_stride = 0;
  /// The memory is uninitialized, so every row must be cleared before something is added to it.
  bool is_unset = false;
  /// The uninitialized gradients of the batch together are larger than the caches.
  bool is_large = false;

  /// Makes clear() set rows to `factor` times the posteriors of an example instead of zero.
  void start_from(const InitialRows& rows, size_t index, double factor) {
    initial = &rows;
    example = index;
    scale = factor;
  }
  /// Initializes `count` rows from `first` on.
  void clear(int64_t first, int64_t count) const;
  /// The entries of frame `t`; G is the type that `dtype` names.
  template <class G>
  G* row(int64_t t) const {
    return static_cast<G*>(data) + t * row_stride;
  }

  const InitialRows* initial = nullptr;  // null: zero
  size_t example = 0;
  double scale = 0.0;
};

/// The destinations of the gradients of all examples; `grads` has one entry per example, null if
/// not wanted. If several examples have the same emissions, each but the first adds to a buffer of
/// its own, so that threads do not race and the order of the sum is fixed.
class EmissionsGrads {
 public:
  EmissionsGrads(std::vector<Gradient*> grads, std::vector<int32_t> labels);
  EmissionsGrad at(size_t example) const;
  /// Adds the buffers to the gradients.
  void join() const;

 private:
  std::vector<Gradient*> grads_;
  std::vector<int32_t> labels_;
  std::vector<bool> is_unset_;
  std::vector<Weights> own_;
  bool is_large_ = false;
};

/// The level of rules that initialize all rows of gradients: rules that add to them come later.
inline constexpr int32_t kFillsRows = 16;

}  // namespace arcgrad::trellis
