#pragma once

// The parts of the `diagonal` kernel. diagonal.cpp explains the algorithm and lists the files.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <memory_resource>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/trellis/kernels/diagonal_loops.h"
#include "arcgrad/trellis/kernels/kernel.h"

namespace arcgrad::trellis::diagonal {

/// After this many frames, the largest exponent of a row is subtracted from all of its exponents.
inline constexpr int32_t kBaseFrames = 64;

/// `n` rounded up to a multiple of kStateBlock.
inline int64_t round_up(int64_t n) { return (n + kStateBlock - 1) / kStateBlock * kStateBlock; }

/// Scores of all states after some frames, one row per frame.
template <class T>
class RowStore {
 public:
  RowStore() = default;
  /// Each row has room for `before` and `after` states on either side of [0, states).
  RowStore(int64_t rows, int64_t before, int64_t states, int64_t after)
      : before_(round_up(before)),
        size_(before_ + states + round_up(after)),
        mantissa_(rows * size_),
        exponent_(rows * size_) {}
  /// The stride of rows, in entries.
  int64_t size() const { return size_; }
  StateRow<T> row(int64_t i) const {
    return {mantissa_.get() + i * size_ + before_, exponent_.get() + i * size_ + before_};
  }

 private:
  int64_t before_ = 0, size_ = 0;
  AlignedBuffer<T> mantissa_;
  AlignedBuffer<Exponent<T>> exponent_;
};

/// The states [low, high).
struct StateRange {
  int32_t low, high;
  bool is_empty() const { return low >= high; }
};

/// Sets the scores of the states [low, high) to zero.
template <class T>
void set_zero(StateRow<T> row, int32_t low, int32_t high) {
  for (int32_t p = low; p < high; ++p) {
    row.mantissa[p] = T(0);
    row.exponent[p] = kDead;
  }
}

template <class T>
class DiagonalRun final : public Run {
  using Int = Exponent<T>;
  using Row = StateRow<T>;

 public:
  DiagonalRun(std::shared_ptr<const Factor> factor, const Emissions& example,
              const RunOptions& options);

  bool clears_rows() const override { return true; }
  void add_gradients(std::span<const double> deltas, std::span<const EmissionsGrad> emissions,
                     std::span<double> arcs) const override;
  std::vector<double> frame_scores(size_t) const override;

 private:
  static const DiagonalTable<T>& choose_loops() {
    if constexpr (sizeof(T) == 4)
      return ARCGRAD_LOOPS(diagonal_f32);
    else
      return ARCGRAD_LOOPS(diagonal_f64);
  }

  Scaled score(Row row, int32_t p, int64_t base) const {
    return {static_cast<double>(row.mantissa[p]), static_cast<double>(row.exponent[p] + base)};
  }

  /// Arranges the graph for the loops.
  void set_up();
  /// Sets `ranges_`. Returns false if one is empty: then no path has this number of frames.
  bool find_ranges();
  StateRange range(int32_t t) const { return ranges_[static_cast<size_t>(t) - 1]; }

  // Forward.

  /// The base of the exponents after frame t.
  int64_t base(int32_t t) const { return base_[static_cast<size_t>(t / kBaseFrames)]; }
  void set(Row row, int32_t p, const Scaled& value, int64_t base) const {
    const double q = value.exponent - static_cast<double>(base);
    const bool alive = !value.is_zero() && q > kDead / 2;
    row.mantissa[p] = alive ? static_cast<T>(value.mantissa) : T(0);
    row.exponent[p] = alive ? static_cast<Int>(q) : Int{kDead};
  }

  RowStore<T> make_rows(int64_t count) const {
    return RowStore<T>(count, std::max(high_offset_, 0), padded_states_, std::max(-low_offset_, 0));
  }

  void split(int32_t t, int32_t count, T* buffer, Split<T>* out) const;
  int64_t enter(const Split<T>* emissions, Row now) const;
  void advance(int32_t t, Row before, const Split<T>* emissions, Row now, int64_t& base) const;
  void run_forward(bool keep);
  void copy(Row now, int32_t t) const;

  // Backward.

  /// Forward scores and emissions of consecutive frames that the backward pass recomputes. Unused
  /// if all frames were kept.
  struct DiagonalSegment {
    RowStore<T> rows;
    AlignedBuffer<Split<T>> emissions;
    AlignedBuffer<T> buffer;
    int32_t first = 0;  // the first frame of the segment
  };

  Row row(const DiagonalSegment& segment, int32_t t) const {
    if (stride_ == 1) return rows_.row(t - 1);
    return t < segment.first ? rows_.row(t / stride_ - 1) : segment.rows.row(t - segment.first);
  }
  const Split<T>* emissions(const DiagonalSegment& segment, int32_t t) const {
    return stride_ == 1 ? split_.get() + (t - 1) * padded_slots_
                        : segment.emissions.get() + (t - segment.first) * padded_slots_;
  }

  /// The exponent of the total score relative to some bases. Posteriors are divided by 2 to this
  /// power. It is bounded from below, so that scores of zero still have the lowest exponents.
  Int scale(int64_t bases) const {
    constexpr double kLowest = kDead / 2 + (1 << 24), kHighest = 1 << 30;
    return static_cast<Int>(
        std::clamp(total_.exponent - static_cast<double>(bases), kLowest, kHighest));
  }

  int32_t diagonal_of(int32_t offset) const {
    int32_t k = 0;
    while (diagonals_.offset[k] != offset) ++k;
    return k;
  }

  struct BandedArcSums;
  void recompute(DiagonalSegment& segment, int32_t t) const;
  void run_backward(double delta, const EmissionsGrad& wanted, std::span<double> arcs,
                    double* frame_scores) const;
  std::vector<Scaled> scores_at_end(Row row) const;
  void add_end_arcs(const std::vector<Scaled>& value, const Scaled& sum, double delta,
                    std::span<double> arcs) const;
  void add_first_arcs(Row now, int64_t end_base, const Scaled& sum, double delta,
                      std::span<double> arcs) const;

  static constexpr Int kNoLimit = 1 << 30;

  std::shared_ptr<const Factor> factor_;
  const TrellisGraph& trellis_graph_;
  Emissions emissions_;
  const char* op_;
  int32_t frames_, stride_;
  const DiagonalTable<T>& loops_;

  /// The size of all the small arrays.
  size_t small_bytes() const;
  /// The memory of the small arrays: a batch has many runs, and allocating each array takes as long
  /// as some frames.
  std::pmr::monotonic_buffer_resource pool_{small_bytes()};
  int32_t num_states_ = 0, low_offset_ = 0, high_offset_ = 0;
  int32_t num_single_ = 0;                        // slots of one state
  int32_t num_slots_ = 0, live_slots_ = 0;        // live: the label is a column of the emissions
  int64_t padded_states_ = 0, padded_slots_ = 0;  // rounded up
  int32_t kind_ = 0;  // index into PerDiagonals: loops for 2, 3 or 6 diagonals
  bool is_weighted_ = false;
  Diagonals<T> diagonals_{};
  AlignedBuffer<Int> weight_exponent_;
  AlignedBuffer<T> weight_mantissa_;
  AlignedBuffer<int32_t> slot_;
  std::pmr::vector<int64_t> index_{&pool_};
  std::pmr::vector<int32_t> slot_offset_{&pool_}, slot_state_{&pool_}, slot_label_{&pool_};
  /// The states that a path may enter in the first frame, and those in which it may end after the
  /// last. `entering_` has the score of entering each of the former.
  StateRange first_{}, last_{};
  /// After each frame, the states that a start reaches and that reach an accept node.
  std::pmr::vector<StateRange> ranges_{&pool_};
  std::pmr::vector<Scaled> entering_{&pool_};

  /// The scores after each frame, or after each multiple of `stride_`, and the emissions of each.
  RowStore<T> rows_;
  AlignedBuffer<Split<T>> split_;
  std::pmr::vector<int64_t> base_{&pool_};
  Scaled total_;
};

}  // namespace arcgrad::trellis::diagonal
