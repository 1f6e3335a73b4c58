#pragma once

// The graph factor of a product, arranged for the loops of best paths.

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "arcgrad/core/semiring.h"
#include "arcgrad/core/weights.h"
#include "arcgrad/trellis/best/best_loops.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// The loop that computes a row from the row before.
enum class BestLoop : uint8_t { diagonals, matrix, terms };

/// The graph as the loops read it. Its weights have the type T of the weights of the product.
///
/// A row has the scores of the emitting states, padded to `padded`, then those of the non-emitting
/// states. In rows for loops over terms, an emitting state whose only term leads without an arc to
/// the non-emitting state of its node has the same score, and therefore the same entry.
template <class T>
class BestGraph {
 public:
  BestGraph(const TrellisGraph& trellis_graph, const Weights& weights, bool is_unweighted,
            BestLoop chosen)
      : trellis_graph(trellis_graph), loop(chosen), is_plain(is_unweighted), arc_weights_(weights) {
    weight_ = arc_weights_.template view<T>().data();
    padded = (trellis_graph.num_emitting + kBestBlock - 1) / kBestBlock * kBestBlock;
    row_size = padded + trellis_graph.num_values - trellis_graph.num_emitting;
    end = end_scores(trellis_graph, std::span<const T>(arc_weights_.template view<T>()));
    label.reserve(trellis_graph.slot.size());
    for (int32_t slot : trellis_graph.slot) label.push_back(trellis_graph.labels[slot]);
    if (loop == BestLoop::diagonals)
      make_diagonals();
    else if (loop == BestLoop::matrix)
      make_matrix();
    else
      make_terms();
  }

  /// The entry of a row that has the score of a state.
  int32_t position(int32_t state) const {
    if (loop == BestLoop::terms) return position_[state];
    return state < trellis_graph.num_emitting ? state : state - trellis_graph.num_emitting + padded;
  }
  /// The weight of an arc of the graph; 0 for -1.
  T weight(int32_t arc) const { return arc < 0 ? T{0} : weight_[arc]; }

  const TrellisGraph& trellis_graph;
  const BestLoop loop;
  bool is_plain;  // every weight is 0, and the loops do not add weights
  int32_t padded, row_size;
  /// The score of ending a path in each state; -inf if none may end there.
  std::vector<double> end;
  std::vector<int32_t> label;  // of each emitting state
  /// How far diagonals reach beyond the emitting states.
  int32_t reach_before = 0, reach_after = 0;
  // Only the one for `loop` is set, without its scratch.
  BestDiagonals<T> diagonals = {};
  BestMatrix<T> matrix = {};
  BestTerms<T> terms = {};

 private:
  static constexpr T kImpossible = -std::numeric_limits<T>::infinity();

  template <class Visit>
  void for_arcs_between_states(const Visit& visit) const {
    const Rows& out = trellis_graph.out;
    for (int32_t p = 0; p < trellis_graph.num_emitting; ++p)
      for (int32_t k = out.offset[p], end = trellis_graph.middle[p]; k < end; ++k)
        visit(p, out.index[k], out.arc[k]);
  }

  void make_diagonals() {
    const auto count = static_cast<int32_t>(trellis_graph.offsets.size());
    reach_before = std::max(0, -trellis_graph.offsets.front());
    reach_after = std::max(0, trellis_graph.offsets.back());
    offsets_ = trellis_graph.offsets;
    diagonals = {padded, 0, 0, 0, 0, count, offsets_.data(), nullptr, 0, nullptr, nullptr};
    if (is_plain) is_plain = make_masks();
    if (is_plain) return;
    const std::vector<int32_t> at = diagonal_of_offset();
    terms_weight_.assign(static_cast<size_t>(count) * static_cast<size_t>(padded), kImpossible);
    for_arcs_between_states([&](int32_t from, int32_t to, int32_t arc) {
      const int64_t diagonal = at[to - from + reach_before];
      terms_weight_[diagonal * padded + from] = weight(arc);
    });
    diagonals.weight = terms_weight_.data();
  }

  /// The diagonal of each offset, from the least on.
  std::vector<int32_t> diagonal_of_offset() const {
    std::vector<int32_t> at(static_cast<size_t>(reach_before + reach_after) + 1);
    for (size_t d = 0; d < offsets_.size(); ++d)
      at[offsets_[d] + reach_before] = static_cast<int32_t>(d);
    return at;
  }

  /// Arranges the diagonals of an unweighted graph; returns false if there are too many.
  bool make_masks() {
    const std::vector<int32_t> at = diagonal_of_offset();
    std::array<int32_t, kMostDiagonals> num_arcs{};
    for_arcs_between_states(
        [&](int32_t from, int32_t to, int32_t) { ++num_arcs[at[to - from + reach_before]]; });
    // A diagonal is full if it has an arc from every state whose destination exists.
    std::array<int32_t, kMostDiagonals> order;
    int32_t num_full = 0, num_others = 0;
    const auto count = static_cast<int32_t>(offsets_.size());
    for (int32_t d = 0; d < count; ++d)
      if (offsets_[d] >= 0 && num_arcs[d] == trellis_graph.num_emitting - offsets_[d] &&
          num_full < kMostPlain)
        order[num_full++] = d;
      else
        order[count - ++num_others] = d;
    if (num_others > kMostPlain) return false;
    for (int32_t k = 0; k < count; ++k) offsets_[k] = trellis_graph.offsets[order[k]];
    mask_.assign(static_cast<size_t>(num_others) * static_cast<size_t>(padded), kNegInf);
    std::array<double*, kMostDiagonals> mask_of{};
    for (int32_t k = num_full; k < count; ++k)
      mask_of[order[k]] = mask_.data() + static_cast<int64_t>(k - num_full) * padded;
    for_arcs_between_states([&](int32_t from, int32_t to, int32_t) {
      if (double* mask = mask_of[at[to - from + reach_before]]) mask[from] = 0.0;
    });
    diagonals.num_full = num_full;
    diagonals.mask = mask_.data();
    return true;
  }

  void make_matrix() {
    terms_weight_.assign(
        static_cast<size_t>(trellis_graph.num_emitting) * static_cast<size_t>(padded), kImpossible);
    for_arcs_between_states([&](int32_t from, int32_t to, int32_t arc) {
      terms_weight_[static_cast<int64_t>(from) * padded + to] = weight(arc);
    });
    matrix = {trellis_graph.num_emitting, padded, terms_weight_.data()};
  }

  void make_terms() {
    const Rows& out = trellis_graph.out;
    // Adding emissions once per state is faster only if several terms lead to most states.
    is_plain &= out.num_terms() > 3 * static_cast<int64_t>(trellis_graph.num_emitting);
    // Whether the score of a state equals the score of the non-emitting state of its node.
    const auto is_copy = [&](int32_t v) {
      return out.offset[v + 1] == out.offset[v] + 1 && out.arc[out.offset[v]] < 0;
    };
    position_.resize(static_cast<size_t>(trellis_graph.num_values));
    row_size = 0;
    for (int32_t v = 0; v < trellis_graph.num_values; ++v)
      if (!is_copy(v)) position_[v] = row_size++;
    for (int32_t v = 0; v < trellis_graph.num_values; ++v)
      if (is_copy(v)) position_[v] = position_[out.index[out.offset[v]]];

    for (auto* column : {&index_, &slot_}) column->reserve(static_cast<size_t>(out.num_terms()));
    for (auto* column : {&offset_, &middle_}) column->reserve(static_cast<size_t>(row_size) + 1);
    terms_weight_.reserve(static_cast<size_t>(out.num_terms()));
    const auto append = [&](int32_t v, bool to_emitting) {
      for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
        const int32_t to = out.index[k];
        if ((to < trellis_graph.num_emitting) != to_emitting) continue;
        index_.push_back(to_emitting && is_plain ? to : position_[to]);
        slot_.push_back(to_emitting ? trellis_graph.slot[to] : 0);
        terms_weight_.push_back(weight(out.arc[k]));
      }
    };
    offset_.push_back(0);
    for (int32_t v = 0; v < trellis_graph.num_values; ++v) {
      if (is_copy(v)) continue;
      append(v, true);
      middle_.push_back(static_cast<int32_t>(index_.size()));
      append(v, false);
      offset_.push_back(static_cast<int32_t>(index_.size()));
    }
    terms = {trellis_graph.num_emitting,
             row_size,
             static_cast<int32_t>(trellis_graph.labels.size()),
             offset_.data(),
             middle_.data(),
             index_.data(),
             slot_.data(),
             terms_weight_.data(),
             position_.data(),
             trellis_graph.slot.data(),
             nullptr};
  }

  Weights arc_weights_;
  const T* weight_;
  std::vector<T> terms_weight_;
  std::vector<double> mask_;
  std::vector<int32_t> offsets_;                                    // diagonals
  std::vector<int32_t> position_, offset_, middle_, index_, slot_;  // terms
};

}  // namespace arcgrad::trellis
