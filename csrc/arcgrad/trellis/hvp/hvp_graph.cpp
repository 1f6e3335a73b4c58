// Arranges the weights and tangents of a graph factor for the Hessian-vector recursion.

#include "arcgrad/trellis/hvp/hvp_graph.h"

#include <cmath>
#include <numeric>

namespace arcgrad::trellis {

HvpGraph::HvpGraph(const Factor& from, std::span<const double> tangents)
    : factor(from),
      trellis_graph(*factor.trellis_graph),
      is_diagonal(!trellis_graph.offsets.empty()),
      arc_tangents(tangents) {
  const auto fill = [&](const Rows& rows, HvpScores& weights) {
    weights = HvpScores(rows.num_terms());
    for (int32_t k = 0; k < rows.num_terms(); ++k)
      if (const int32_t a = rows.arc[k]; a < 0)
        weights.set(k, 1.0, 0.0, 0.0);
      else
        weights.set(k, factor.mantissa[a], factor.exponent[a], tangent_of(a));
  };
  fill(trellis_graph.in(), in_weights_);
  fill(trellis_graph.out, out_weights_);
  in = {trellis_graph.in().offset.data(), trellis_graph.in().index.data(), in_weights_.at(0)};
  out = {trellis_graph.out.offset.data(), trellis_graph.out.index.data(), out_weights_.at(0)};
  find_ends();
  slot_offset.resize(trellis_graph.labels.size() + 1);
  slot_state.resize(trellis_graph.slot.size());
  for (int32_t slot : trellis_graph.slot) ++slot_offset[slot + 1];
  std::partial_sum(slot_offset.begin(), slot_offset.end(), slot_offset.begin());
  std::vector<int32_t> next(slot_offset.begin(), slot_offset.end() - 1);
  for (int32_t p = 0; p < trellis_graph.num_emitting; ++p)
    slot_state[next[trellis_graph.slot[p]]++] = p;
  if (!trellis_graph.labels.empty())
    has_all_labels = trellis_graph.labels.back() - trellis_graph.labels.front() + 1 ==
                     static_cast<int32_t>(trellis_graph.labels.size());
  if (is_diagonal) make_diagonals();
}

void HvpGraph::find_ends() {
  begin = HvpScores(trellis_graph.num_values);
  end = HvpScores(trellis_graph.num_values);
  std::vector<double> tangent(static_cast<size_t>(trellis_graph.num_values));
  // The weight of starting or ending in a state, -1 for weight 0.
  constexpr int32_t kNone = -2;
  std::vector<int32_t> own(static_cast<size_t>(trellis_graph.num_values), kNone);
  const auto add_own = [&](int32_t v, WeightedMean& mean) {
    if (own[v] == kNone) return;
    const Scaled weight = factor.weight(own[v]);
    mean.add(weight.mantissa, weight.exponent, tangent_of(own[v]));
  };
  for (size_t k = 0; k < trellis_graph.start.size(); ++k) {
    const int32_t v = trellis_graph.start[k];
    own[v] = trellis_graph.start_weight(k);
    tangent[v] = tangent_of(own[v]);
  }
  for (int32_t s = trellis_graph.num_emitting; s < trellis_graph.num_values; ++s) {
    WeightedMean mean;
    add_own(s, mean);
    for (int32_t k = in.offset[s]; k < in.offset[s + 1]; ++k) {
      const int32_t i = in.index[k];
      mean.add(factor.begin[i].mantissa * in.weight.mantissa[k],
               factor.begin[i].exponent + in.weight.exponent[k], tangent[i] + in.weight.tangent[k]);
    }
    tangent[s] = mean.get();
  }
  for (int32_t v = 0; v < trellis_graph.num_values; ++v)
    begin.set(v, factor.begin[v].mantissa, factor.begin[v].exponent, tangent[v]);

  std::ranges::fill(own, kNone);
  for (size_t k = 0; k < trellis_graph.accept.size(); ++k)
    own[trellis_graph.accept[k]] = trellis_graph.accept_weight(k);
  for (int32_t v = trellis_graph.num_values; v-- > 0;) {
    WeightedMean mean;
    add_own(v, mean);
    for (int32_t k = trellis_graph.out.offset[v]; k < trellis_graph.out.offset[v + 1]; ++k) {
      const int32_t i = trellis_graph.out.index[k];
      if (i < trellis_graph.num_emitting) continue;
      mean.add(factor.end[i].mantissa * out.weight.mantissa[k],
               factor.end[i].exponent + out.weight.exponent[k], tangent[i] + out.weight.tangent[k]);
    }
    tangent[v] = mean.get();
    end.set(v, factor.end[v].mantissa, factor.end[v].exponent, tangent[v]);
  }
}

void HvpGraph::make_diagonals() {
  const auto count = static_cast<int32_t>(trellis_graph.offsets.size());
  for (int32_t offset : trellis_graph.offsets) reach = std::max<int64_t>(reach, std::abs(offset));
  reach += kHvpLanes;
  padded = (trellis_graph.num_emitting + kHvpLanes - 1) / kHvpLanes * kHvpLanes;
  const int64_t stride = padded + 2 * reach;
  diagonal_weights_ = HvpScores::impossible(count * stride);
  diagonal_arc.assign(static_cast<size_t>(count * stride), -1);
  for (int32_t from = 0; from < trellis_graph.num_emitting; ++from)
    for (int32_t k = trellis_graph.out.offset[from]; k < trellis_graph.middle[from]; ++k) {
      const int32_t p = trellis_graph.out.index[k], a = trellis_graph.out.arc[k];
      const auto d =
          std::ranges::lower_bound(trellis_graph.offsets, p - from) - trellis_graph.offsets.begin();
      const int64_t at = d * stride + reach + p;
      diagonal_weights_.set(at, factor.mantissa[a], factor.exponent[a], tangent_of(a));
      diagonal_arc[static_cast<size_t>(at)] = a;
    }
  diagonals = {count, trellis_graph.offsets.data(), stride, diagonal_weights_.at(reach)};
}

}  // namespace arcgrad::trellis
