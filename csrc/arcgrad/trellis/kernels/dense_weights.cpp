// Packs the weights of a graph for the `dense` kernel: the matrix of its arcs and its transpose in
// panels, as blocked matrix products read them (Goto and van de Geijn 2008), and the scores of the
// first frame. This happens once for all examples of a graph.

#include <cmath>

#include "arcgrad/trellis/kernels/dense.h"

namespace arcgrad::trellis::dense {

template <class T>
PackedWeights<T>::PackedWeights(const Factor& factor, const std::vector<int32_t>& first_arc) {
  using Range = DenseRange<T>;
  const TrellisGraph& trellis_graph = *factor.trellis_graph;
  const int64_t count = trellis_graph.num_emitting, width = padded(count, kDensePad);
  const Rows& out = trellis_graph.out;
  const DenseTable<T>& loops = dense_loops<T>();
  const double *mantissas = factor.mantissa.data(), *exponents = factor.exponent.data();
  double highest = -kInf, lowest = kInf;
  int64_t alive = 0;
  const auto add = [&](int32_t arc, int64_t arcs) {
    alive += loops.find_range(mantissas + arc, exponents + arc, arcs, &highest, &lowest);
  };
  for (int32_t s = 0; s < trellis_graph.num_emitting; ++s)
    if (first_arc[s] >= 0)
      add(first_arc[s], count);
    else
      for (int32_t k = out.offset[s]; k < trellis_graph.middle[s]; ++k) add(out.arc[k], 1);
  if (alive > 0) {
    exponent = highest;
    is_full = alive == count * count && highest - lowest <= Range::kFull;
    fits = highest - lowest <= Range::kSparse;
  }
  double highest_end = -kInf, lowest_end = kInf;
  for (int64_t p = 0; p < count; ++p) {
    highest_end = std::max(highest_end, factor.end[p].exponent);
    lowest_end = std::min(lowest_end, factor.end[p].exponent);
  }
  end_exponent = highest_end;
  has_full_end = lowest_end > -kInf && highest_end - lowest_end <= Range::kFull;
  if (!fits) return;
  forward = AlignedBuffer<T>(width * count);
  backward = AlignedBuffer<T>(width * count);
  // Rows are packed in groups as wide as a panel of the transpose.
  constexpr int64_t kRows = kPanel<T>;
  const auto fill = [&](int64_t first, const AlignedBuffer<T>& rows) {
    std::fill_n(rows.get(), kRows * width, T{0});
    for (int64_t s = first; s < std::min(first + kRows, count); ++s) {
      T* row = rows.get() + (s - first) * width;
      const auto put = [&](int32_t arc, int64_t arcs, T* to) {
        loops.join(mantissas + arc, exponents + arc, arcs, exponent, to);
      };
      if (first_arc[s] >= 0)
        put(first_arc[s], count, row);
      else
        for (int32_t k = out.offset[s]; k < trellis_graph.middle[s]; ++k)
          put(out.arc[k], 1, row + out.index[k]);
      for (int64_t d = 0; d < width; d += kPanel<T>)
        std::copy_n(row + d, kPanel<T>, forward.get() + d * count + s * kPanel<T>);
    }
    for (int64_t d = 0; d < count; ++d)
      for (int64_t c = 0; c < kRows; ++c)
        backward[first * count + d * kPanel<T> + c] = rows[c * width + d];
  };
  const size_t parts = num_parts(count * count);
  parallel_for(parts, [&](size_t part) {
    const AlignedBuffer<T> rows = AlignedBuffer<T>(kRows * width);
    const int64_t end = begin_of(part + 1, parts, width, kRows);
    for (int64_t first = begin_of(part, parts, width, kRows); first < end; first += kRows)
      fill(first, rows);
  });
}

DenseFactor::DenseFactor(const Factor& from) {
  const TrellisGraph& trellis_graph = *from.trellis_graph;
  const auto count = static_cast<size_t>(trellis_graph.num_emitting);
  label.resize(count);
  for (size_t p = 0; p < count; ++p) {
    label[p] = trellis_graph.labels[trellis_graph.slot[p]];
    is_consecutive &= label[p] == label[0] + static_cast<int32_t>(p);
  }
  first_arc.assign(count, -1);
  for (int32_t v = 0; v < trellis_graph.num_emitting; ++v) {
    const int32_t begin = trellis_graph.out.offset[v];
    if (trellis_graph.middle[v] - begin != trellis_graph.num_emitting) continue;
    const int32_t* const index = trellis_graph.out.index.data() + begin;
    const int32_t* const arc = trellis_graph.out.arc.data() + begin;
    int32_t other = 0;
    for (int32_t d = 0; d < trellis_graph.num_emitting; ++d)
      other |= (index[d] ^ d) | (arc[d] - d - arc[0]);
    if (other == 0) first_arc[v] = arc[0];
  }
  std::vector<ScaledSum> sums(count);
  for (int32_t v = 0; v < trellis_graph.num_values; ++v) {
    if (from.begin[v].is_zero()) continue;
    for (int32_t k = trellis_graph.out.offset[v]; k < trellis_graph.out.offset[v + 1]; ++k) {
      if (trellis_graph.out.index[k] >= trellis_graph.num_emitting) continue;
      const Scaled term = times(from.begin[v], from.weight(trellis_graph.out.arc[k]));
      sums[trellis_graph.out.index[k]].add(term.mantissa, term.exponent);
    }
  }
  for (const ScaledSum& sum : sums) first.push_back(sum.get());
  log_first.assign(static_cast<size_t>(padded(trellis_graph.num_emitting, kDensePad)), -kInf);
  for (size_t p = 0; p < count; ++p) log_first[p] = log(first[p]);
}

template struct PackedWeights<float>;
template struct PackedWeights<double>;

}  // namespace arcgrad::trellis::dense
