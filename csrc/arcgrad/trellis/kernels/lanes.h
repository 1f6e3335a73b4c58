#pragma once

// The `lanes` and `csr` kernels: the forward-backward algorithm (Rabiner 1989; Mohri 2009 for
// epsilon arcs) over the sparse rows of any graph, with the recursion that trellis_graph.h gives.
// `lanes` runs 8 examples of a graph at once. Lane l of every vector belongs to example l, so each
// term of the graph is read once for all examples, and vectors need no shuffles. `csr` is the same
// code with one lane, in double. Invariant: after frame t, the value of state v in lane l is the
// score of all paths of example l that end in v, a mantissa and an exponent (isa/simd.h) relative
// to a base per lane that changes every few frames. Lanes do not interact; after the last frame of
// a short example, the scores of its lane are zero. Cost: one multiplication per frame, term and
// example; memory for the values of all frames, or of every stride-th frame, and then the others
// are computed twice. Threads divide the states of a frame if the graph is large: a batch often has
// one normalizer and few examples. Files: lanes_forward.cpp, lanes_backward.cpp, and the loops over
// states in lanes_loops.h; this class runs them over frames.

#include <array>
#include <memory>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/kernels/lanes_loops.h"

namespace arcgrad::trellis {

/// The weights of a factor in the order of its rows, in type T.
template <class T>
struct RowWeights {
  explicit RowWeights(const Factor& factor);
  std::vector<T> in_mantissa, out_mantissa;
  std::vector<Exponent<T>> in_exponent, out_exponent;
  /// The scores of states before the first and after the last frame.
  std::vector<T> begin_mantissa, end_mantissa;
  std::vector<Exponent<T>> begin_exponent, end_exponent;
};

/// Exponents grow by less than 2^23 per frame, so 32 bits suffice for this many frames.
inline constexpr int32_t kFramesPerRebase = 64;

/// States of a frame that do not depend on each other, so that threads can divide them, and states
/// after them that one thread computes.
struct Stage {
  /// The bounds of the parts: part k has the states from cuts[k] to cuts[k + 1].
  std::vector<int32_t> cuts;
  States rest;

  States part(size_t k) const { return {cuts[k], cuts[k + 1]}; }
};

/// The number of parts, one per thread, into which to cut the frames of a graph. It does not affect
/// results.
size_t num_lanes_parts(const TrellisGraph& graph);
/// The stages of a frame: the emitting states, then non-emitting ones.
std::vector<Stage> make_stages(const TrellisGraph& graph, size_t parts);

/// The loops for 8 examples.
template <class T>
const LanesTable<T>& lanes_loops();

/// The recursion over sparse rows for up to W examples.
template <class T, int W>
class RowsRun final : public Run {
 public:
  RowsRun(std::shared_ptr<const Factor> factor, std::shared_ptr<const RowWeights<T>> weights);

  /// Computes the forward pass. Another call with other examples reuses the memory.
  void forward(std::span<const Emissions> examples, const RunOptions& options);

  bool clears_rows() const override { return true; }
  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const override;
  std::vector<double> frame_scores(size_t i) const override;

 private:
  using Q = Exponent<T>;
  struct Backward;

  /// The values of some frames, uninitialized.
  struct FrameValues {
    AlignedBuffer<T> mantissa;
    AlignedBuffer<Q> exponent;
    size_t capacity = 0;
    void reserve(size_t count);
    Scores<T> at(size_t offset) const { return {mantissa.get() + offset, exponent.get() + offset}; }
  };

  size_t frame_size() const { return static_cast<size_t>(shape_.num_values) * W; }
  /// The slots that a thread converts.
  States slots_of(size_t part) const;
  /// The recomputed frames between two kept frames.
  struct RowsSegment {
    FrameValues frames;
    int32_t index = -1;
  };
  /// The values of frame t.
  Scores<T> values(int32_t t, RowsSegment& segment) const;
  /// Computes the values `at(t)` of each frame from `first` to `last` from those before it, and
  /// calls done(t) after each.
  template <class At, class Done>
  void run_frames(int32_t first, int32_t last, const At& at, const Done& done) const;
  /// Subtracts the largest exponents of a frame, if it is time to, and adds them to `base`.
  void rebase(int32_t t, Scores<T> values, int64_t* base) const;
  /// Converts the emissions of some slots of frame t.
  void split(int32_t t, States slots, Scores<T> out) const;
  void finish(int32_t t, Scores<T> values, const int64_t* base);
  void run_backward(Backward& state) const;
  /// Adds the posteriors of some slots of frame t to the gradients of emissions.
  void add_rows(Backward& state, int32_t t, States slots, const T* posteriors,
                const T* scale) const;
  /// Adds the posteriors of the epsilon arcs and accept weights after the last frame.
  void add_boundary(Backward& state, int32_t lane) const;
  /// Adds the posteriors of start weights. `b` has the scores to the end before the first frame.
  void add_start_weights(Backward& state, int32_t lane, Scores<T> b, double base) const;

  std::shared_ptr<const Factor> factor_;
  std::shared_ptr<const RowWeights<T>> weights_;
  const LanesTable<T>* loops_;
  Shape shape_;
  size_t parts_;
  std::vector<Stage> stages_;
  WeightedRows<T> in_, out_;
  const char* op_ = "";
  std::vector<Emissions> examples_;
  std::array<int32_t, W> count_{};  // the first slots, whose labels the example has
  int32_t frames_ = 0;
  int32_t stride_ = 1;
  FrameValues history_;        // every stride_-th frame
  FrameValues rolling_;        // two frames, if not all are kept
  std::vector<int64_t> base_;  // of frame t and lane l at t * W + l
  std::array<Scaled, W> total_;
};

}  // namespace arcgrad::trellis
