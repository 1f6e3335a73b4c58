#pragma once

#include <array>
#include <memory>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/kernels/lanes_loops.h"

namespace arcgrad::trellis {

/// The weights of a factor in the order of its rows, as a recursion of type T reads them.
template <class T>
struct RowWeights {
  explicit RowWeights(const Factor& factor);
  std::vector<T> in_mantissa, out_mantissa;
  std::vector<Exponent<T>> in_exponent, out_exponent;
  /// The scores of values before the first and after the last frame.
  std::vector<T> begin_mantissa, end_mantissa;
  std::vector<Exponent<T>> begin_exponent, end_exponent;
};

/// The loops for 8 examples.
template <class T>
const LanesTable<T>& lanes_steps();

/// The recursion over sparse rows for up to W examples.
template <class T, int W>
class RowsRun final : public Run {
 public:
  RowsRun(std::shared_ptr<const Factor> factor, std::shared_ptr<const RowWeights<T>> weights);

  /// Runs forward; may be called again with other examples, and then reuses its memory.
  void forward(std::span<const Emissions> examples, const RunOptions& options);

  bool clears_rows() const override { return true; }
  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const override;
  std::vector<double> frame_scores(size_t i) const override;

 private:
  using Q = Exponent<T>;
  struct Backward;

  /// Memory that is not initialized.
  struct Frames {
    Block<T> mantissa;
    Block<Q> exponent;
    size_t capacity = 0;
    void reserve(size_t count);
    Scores<T> at(size_t offset) const { return {mantissa.get() + offset, exponent.get() + offset}; }
  };

  size_t frame_size() const { return static_cast<size_t>(shape_.num_values) * W; }
  /// Frames between two checkpoints, made again on the way back.
  struct Segment {
    Frames frames;
    int32_t index = -1;
  };
  /// The values of frame t.
  Scores<T> values(int32_t t, Segment& segment) const;
  /// Computes frame t from frame t - 1.
  void step(int32_t t, Scores<T> from, Scores<T> to, int64_t* base) const;
  void split(int32_t t, Scores<T> out) const;
  void finish(int32_t t, Scores<T> values, const int64_t* base);
  void run_backward(Backward& state) const;
  /// Adds the posteriors of the epsilon arcs after the last frame.
  void add_boundary(Backward& state, int32_t lane) const;

  std::shared_ptr<const Factor> factor_;
  std::shared_ptr<const RowWeights<T>> weights_;
  const LanesTable<T>* steps_;
  Shape shape_;
  WeightedRows<T> in_, out_;
  const char* op_ = "";
  std::vector<Emissions> examples_;
  std::array<int32_t, W> count_{};  // how many of the form's labels each example has
  int32_t frames_ = 0;
  int32_t stride_ = 1;
  Frames history_;             // every stride_-th frame
  Frames rolling_;             // two frames, where not all are kept
  std::vector<int64_t> base_;  // of frame t and lane l at t * W + l
  std::array<Scaled, W> total_;
};

}  // namespace arcgrad::trellis
