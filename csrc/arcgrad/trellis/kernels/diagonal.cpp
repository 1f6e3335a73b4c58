// The `diagonal` kernel: the forward-backward algorithm (Rabiner 1989) for banded graphs, such as
// the alignments of a target in CTC (Graves et al. 2006): every arc between emitting states leads
// from a state p - d to a state p, for one of at most 6 offsets d. With e the emissions of a frame:
//
//     forward:   v[p] = e[p] sum_d w_d[p] v'[p - d]                v' is v of the frame before
//     backward:  b'[p] = sum_d w_d[p + d] e[p + d] b[p + d],  posterior of p: v[p] b[p] / total
//
// Each frame is a stencil, so the loops vectorize over states and read contiguous memory. A missing
// arc has weight zero. Invariant: each score is a mantissa in [1, 2) and an exponent (isa/simd.h)
// relative to a base per frame, so scores never underflow. Only states that a start reaches, and
// that reach an accept state, are computed. Cost: one multiplication per frame, state and offset;
// memory for all scores, or for every stride-th frame, and then the others are computed again.
// Non-emitting states matter only before the first and after the last frame.
// Files: diagonal_forward.cpp, diagonal_backward.cpp, and the loops in diagonal_loops.h.

#include "arcgrad/trellis/kernels/diagonal.h"

#include <cstddef>
#include <numeric>
#include <utility>

namespace arcgrad::trellis {
namespace diagonal {

template <class T>
DiagonalRun<T>::DiagonalRun(std::shared_ptr<const Factor> factor, const Emissions& example,
                            const RunOptions& options)
    : factor_(std::move(factor)),
      trellis_graph_(*factor_->trellis_graph),
      emissions_(example),
      op_(options.op),
      frames_(example.frames),
      stride_(std::max(options.stride, 1)),
      loops_(choose_loops()) {
  if (frames_ == 0) {
    total_ = factor_->empty;
  } else {
    set_up();
    run_forward(options.keep);
  }
  scores.push_back(log(total_));
}

template <class T>
size_t DiagonalRun<T>::small_bytes() const {
  const auto slots = trellis_graph_.labels.size(), states = trellis_graph_.slot.size();
  const auto frames = static_cast<size_t>(frames_);
  constexpr size_t kFewEntering = 4;  // most targets begin with a blank or one token
  return slots * (sizeof(int64_t) + 2 * sizeof(int32_t)) + states * sizeof(int32_t) +
         frames * sizeof(StateRange) + kFewEntering * sizeof(Scaled) +
         (frames / kBaseFrames + 1) * sizeof(int64_t) + 2 * sizeof(int64_t);
}

template <class T>
void DiagonalRun<T>::set_up() {
  // Memory for arrays that are used only here.
  std::array<std::byte, 4096> own;
  std::pmr::monotonic_buffer_resource scratch(own.data(), own.size());
  num_states_ = trellis_graph_.num_emitting;
  padded_states_ = round_up(num_states_);
  low_offset_ = trellis_graph_.offsets.front();
  high_offset_ = trellis_graph_.offsets.back();
  kind_ = trellis_graph_.offsets.size() <= 2 ? 0 : trellis_graph_.offsets.size() == 3 ? 1 : 2;
  const int32_t count = std::array{2, 3, 6}[static_cast<size_t>(kind_)];
  is_weighted_ = !factor_->is_unweighted;

  const int64_t pad = round_up(std::max(std::abs(low_offset_), std::abs(high_offset_)));
  const int64_t size = pad + padded_states_ + pad;
  weight_exponent_ = AlignedBuffer<Int>(count * size, kDead);
  if (is_weighted_) weight_mantissa_ = AlignedBuffer<T>(count * size, T(0));
  // Where the diagonal of each offset begins, counted from the lowest offset.
  std::pmr::vector<int64_t> diagonal(static_cast<size_t>(high_offset_ - low_offset_) + 1, &scratch);
  for (int32_t k = 0; k < count; ++k) {
    const bool is_used = k < static_cast<int32_t>(trellis_graph_.offsets.size());
    diagonals_.offset[k] = trellis_graph_.offsets[is_used ? k : 0];  // unused ones have no arcs
    if (is_used) diagonal[trellis_graph_.offsets[k] - low_offset_] = k * size + pad;
    diagonals_.exponent[k] = weight_exponent_.get() + k * size + pad;
    diagonals_.mantissa[k] = is_weighted_ ? weight_mantissa_.get() + k * size + pad : nullptr;
  }
  for (int32_t from = 0; from < num_states_; ++from)
    for (int32_t k = trellis_graph_.out.offset[from]; k < trellis_graph_.middle[from]; ++k) {
      const int32_t p = trellis_graph_.out.index[k], arc = trellis_graph_.out.arc[k];
      const int64_t cell = diagonal[p - from - low_offset_] + p;
      if (!is_weighted_) {
        weight_exponent_.get()[cell] = kNoLimit;
      } else if (factor_->mantissa[arc] > 0.0) {
        weight_exponent_.get()[cell] = static_cast<Int>(factor_->exponent[arc]);
        weight_mantissa_.get()[cell] = static_cast<T>(factor_->mantissa[arc]);
      }
    }

  const auto& labels = trellis_graph_.labels;
  num_slots_ = static_cast<int32_t>(labels.size());
  live_slots_ =
      static_cast<int32_t>(std::ranges::lower_bound(labels, emissions_.labels) - labels.begin());
  padded_slots_ = round_up(num_slots_);
  index_.resize(static_cast<size_t>(live_slots_));
  for (int32_t s = 0; s < live_slots_; ++s) index_[s] = labels[s] * emissions_.col_stride;
  slot_ = AlignedBuffer<int32_t>(padded_states_, 0);
  std::ranges::copy(trellis_graph_.slot, slot_.get());
  diagonals_.slot = slot_.get();
  std::pmr::vector<int32_t> states_of(static_cast<size_t>(num_slots_), &scratch),
      order(static_cast<size_t>(live_slots_), &scratch);
  for (int32_t s : trellis_graph_.slot) ++states_of[s];
  // A counting sort by the number of states.
  std::pmr::vector<int32_t> place(static_cast<size_t>(num_states_) + 2, &scratch);
  for (int32_t s = 0; s < live_slots_; ++s) ++place[states_of[s] + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  for (int32_t s = 0; s < live_slots_; ++s) order[place[states_of[s]]++] = s;
  std::pmr::vector<int32_t> next(static_cast<size_t>(num_slots_), -1, &scratch);
  slot_label_.reserve(order.size());
  slot_offset_.reserve(order.size() + 1);
  slot_offset_.push_back(0);
  for (int32_t s : order) {
    num_single_ += states_of[s] == 1 ? 1 : 0;
    slot_label_.push_back(labels[s]);
    next[s] = slot_offset_.back();
    slot_offset_.push_back(next[s] + states_of[s]);
  }
  slot_state_.resize(static_cast<size_t>(slot_offset_.back()));
  for (int32_t p = 0; p < num_states_; ++p)
    if (trellis_graph_.slot[p] < live_slots_) slot_state_[next[trellis_graph_.slot[p]]++] = p;

  // The scores of entering states in the first frame, and the states that may end a path.
  std::pmr::vector<ScaledSum> entering(&scratch);
  first_ = {num_states_, 0};
  last_ = {num_states_, 0};
  auto include = [](StateRange& window, int32_t p) {
    window.low = std::min(window.low, p);
    window.high = std::max(window.high, p + 1);
  };
  for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
    if (factor_->begin[v].is_zero()) continue;
    for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.out.offset[v + 1]; ++k)
      if (trellis_graph_.out.index[k] < num_states_) include(first_, trellis_graph_.out.index[k]);
  }
  for (int32_t p = 0; p < num_states_; ++p)
    if (!factor_->end[p].is_zero()) include(last_, p);
  if (first_.is_empty() || last_.is_empty()) return;
  entering.resize(static_cast<size_t>(first_.high - first_.low));
  for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
    const Scaled begin = factor_->begin[v];
    if (begin.is_zero()) continue;
    for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
      if (trellis_graph_.out.index[k] >= num_states_) continue;
      const Scaled term = product(begin, factor_->weight(trellis_graph_.out.arc[k]));
      entering[trellis_graph_.out.index[k] - first_.low].add(term.mantissa, term.exponent);
    }
  }
  entering_.reserve(entering.size());
  for (const ScaledSum& sum : entering) entering_.push_back(sum.get());
}

}  // namespace diagonal

std::unique_ptr<Run> run_diagonal(std::shared_ptr<const Factor> factor,
                                  std::span<const Emissions> example, const RunOptions& options) {
  return dispatch(promote(factor->weights.dtype(), example[0].dtype),
                  [&](auto kind) -> std::unique_ptr<Run> {
                    return std::make_unique<diagonal::DiagonalRun<decltype(kind)>>(
                        std::move(factor), example[0], options);
                  });
}

}  // namespace arcgrad::trellis
