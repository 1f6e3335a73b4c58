#pragma once

// The graph factor of a product and the tangents of its weights, arranged for the Hessian-vector
// recursion.

#include <algorithm>
#include <span>
#include <vector>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/buffer.h"
#include "arcgrad/trellis/hvp/hvp_loops.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// An array of scores with tangents.
class HvpScores {
 public:
  HvpScores() = default;
  /// Uninitialized.
  explicit HvpScores(int64_t size) : size_(size), memory_(3 * size) {}
  static HvpScores impossible(int64_t size) {
    HvpScores out(size);
    out.kill(0, size);
    return out;
  }
  void kill(int64_t begin, int64_t count) const {
    const TangentScores to = at(begin);
    std::fill_n(to.mantissa, count, 0.0);
    std::fill_n(to.exponent, count, kNegInf);
    std::fill_n(to.tangent, count, 0.0);
  }
  TangentScores at(int64_t offset) const {
    double* const from = memory_.get() + offset;
    return {from, from + size_, from + 2 * size_};
  }
  void set(int64_t i, double mantissa, double exponent, double tangent) const {
    memory_[i] = mantissa;
    memory_[size_ + i] = mantissa == 0.0 ? kNegInf : exponent;
    memory_[2 * size_ + i] = tangent;
  }

 private:
  int64_t size_ = 0;
  AlignedBuffer<double> memory_;
};

/// A mean whose weights may differ by any order of magnitude.
class WeightedMean {
 public:
  void add(double mantissa, double exponent, double value) {
    if (mantissa == 0.0) return;
    if (exponent > top_) {
      const double down = pow2(top_ - exponent);
      weight_ *= down;
      sum_ *= down;
      top_ = exponent;
    }
    const double w = mantissa * pow2(exponent - top_);
    weight_ += w;
    sum_ += w * value;
  }
  double get() const { return weight_ > 0.0 ? sum_ / weight_ : 0.0; }

 private:
  double top_ = kNegInf, weight_ = 0.0, sum_ = 0.0;
};

/// The graph factor as the loops read it, by rows of terms and, if it is banded, by diagonals.
struct HvpGraph {
  /// `arc_tangents` may be empty, for zeros.
  HvpGraph(const Factor& factor, std::span<const double> arc_tangents);

  const Factor& factor;
  const TrellisGraph& trellis_graph;
  const bool is_diagonal;
  double tangent_of(int32_t arc) const {
    return arc < 0 || arc_tangents.empty() ? 0.0 : arc_tangents[arc];
  }
  HvpRows in, out;
  /// The tangent of each weight; empty if all are 0.
  const std::span<const double> arc_tangents;
  /// The score of each state before the first frame, and of ending a path in it after the last.
  HvpScores begin, end;
  /// The emitting states by label: slot s has slot_state[slot_offset[s]] to
  /// slot_state[slot_offset[s + 1] - 1].
  std::vector<int32_t> slot_offset, slot_state;
  bool has_all_labels = true;  // whether the labels are consecutive
  /// Of diagonals: their reach beyond the emitting states, the padded number of states, and the arc
  /// of each weight, -1 for none.
  HvpDiagonals diagonals = {};
  int64_t reach = 0, padded = 0;
  std::vector<int32_t> diagonal_arc;

 private:
  void find_ends();
  void make_diagonals();

  HvpScores in_weights_, out_weights_, diagonal_weights_;
};

}  // namespace arcgrad::trellis
