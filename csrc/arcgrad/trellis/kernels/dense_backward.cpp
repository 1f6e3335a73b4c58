// The backward pass of the `dense` kernel: posteriors of emissions and arcs. The posteriors of arcs
// between emitting states are a matrix v'^T f per frame. Their sum over frames is a product of two
// tall matrices, computed for up to kOuterRows rows at a time.

#include <cmath>
#include <numbers>
#include <type_traits>

#include "arcgrad/trellis/kernels/dense.h"

namespace arcgrad::trellis::dense {
namespace {

/// Adds v * b * scale of one frame to the gradient of the emissions.
template <class T>
void add_frame(const T* v, const T* b, T scale, const DenseFactor& shared, int64_t width,
               int64_t frame, const EmissionsGrad& grad, T* scratch) {
  const DenseTable<T>& loops = dense_loops<T>();
  const auto count = static_cast<int64_t>(shared.label.size());
  dispatch(grad.dtype, [&](auto kind) {
    using To = decltype(kind);
    To* to = grad.row<To>(frame);
    if (shared.is_consecutive) {
      const int64_t first = shared.label[0];
      const int64_t known = std::clamp<int64_t>(grad.labels - first, 0, count);
      if constexpr (std::is_same_v<T, To>) return loops.add_product(v, b, known, scale, to + first);
    }
    loops.product(v, b, width, scale, scratch);
    for (int64_t p = 0; p < count; ++p)
      if (shared.label[p] < grad.labels) to[shared.label[p]] += static_cast<To>(scratch[p]);
  });
}

}  // namespace

template <class T>
void DenseRecursion<T>::backward(std::span<const double> deltas,
                                 std::span<const EmissionsGrad> emissions, DenseArcSums* sums,
                                 std::vector<double>* frame_scores) const {
  const DenseTable<T>& loops = dense_loops<T>();
  // The rows with a gradient, by descending length.
  std::vector<int32_t> active;
  for (int32_t r = 0; r < num_rows(1); ++r) {
    const size_t i = order_[static_cast<size_t>(r)];
    if (deltas[i] != 0.0 && scores_[i] > -kInf && !failed_[i]) active.push_back(r);
  }
  if (active.empty()) return;
  const auto most = static_cast<int64_t>(active.size());
  const auto b = AlignedBuffer<T>(most * stride_), f = AlignedBuffer<T>(most * stride_);
  const auto product = AlignedBuffer<T>(width_);
  const int32_t last = frames(active[0]);
  const size_t parts = num_parts(most * trellis_graph_.num_emitting * width_);
  // v of the previous frame and f, for as many frames as fit a block.
  AlignedBuffer<T> block_v, block_f;
  std::vector<AlignedBuffer<T>> scratch(sums ? parts : 0);
  int64_t filled = 0;
  bool is_block_full = false;
  if (sums) {
    const int64_t capacity = std::min(kOuterRows, row_of(last + 1)) * stride_;
    block_v = AlignedBuffer<T>(capacity + kDensePad);
    block_f = AlignedBuffer<T>(capacity);
    for (AlignedBuffer<T>& own : scratch)
      own = AlignedBuffer<T>(capacity + kOuterRows * (kPanel<T> + kOuterPad));
    std::fill_n(block_v.get() + capacity, kDensePad, T{0});
  }
  const auto add_block = [&](size_t part) {
    const int64_t begin = begin_of(part, parts, trellis_graph_.num_emitting, kOuterPad);
    const int64_t end = begin_of(part + 1, parts, trellis_graph_.num_emitting, kOuterPad);
    if (begin < end)
      loops.outer(filled, block_v.get() + begin, block_f.get(), stride_, end - begin, width_,
                  scratch[part].get(), sums->is_empty, sums->between.get() + begin * width_);
  };

  DenseSegment segment;
  double rest = 0.0;  // for frame_scores(): the logarithm of the scale of b
  int64_t count = 0;  // of active rows that have the current frame
  const auto count_at = [&](int32_t t) {
    int64_t out = count;
    while (out < most && frames(active[static_cast<size_t>(out)]) >= t) ++out;
    return out;
  };
  const auto finish_frame = [&](int32_t t) {
    if (is_block_full) {
      sums->is_empty = is_block_full = false;
      filled = 0;
    }
    const DenseSegment* at = &all_;
    if (options_.stride > 1) {
      if (t <= segment.first || t > segment.last) fill(segment, t);
      at = &segment;
    }
    const int64_t base = row_of(t) - row_of(at->first);
    const int64_t base_before = t > 1 ? row_of(t - 1) - row_of(at->first) : 0;
    const int64_t continued = count;
    count = count_at(t);
    for (int64_t k = 0; k < count; ++k) {
      const int32_t r = active[static_cast<size_t>(k)];
      const size_t i = order_[static_cast<size_t>(r)];
      const T* v = at->v + (base + r) * stride_;
      T* after = b.get() + k * stride_;
      const bool is_last = k >= continued;
      if (is_last) {
        double exponent;
        end_scores(v, after, exponent);
        rest = exponent * std::numbers::ln2;
      }
      const double sum = loops.overlap(v, width_, after);
      const Scale& scale = scales_[static_cast<size_t>(row_of(t) + r)];
      if (frame_scores) (*frame_scores)[static_cast<size_t>(t) - 1] = rest + std::log(sum);
      const T posterior = static_cast<T>(deltas[i] / sum);
      if (!frame_scores && emissions[i].data)
        add_frame(v, after, posterior, shared_, width_, t - 1, emissions[i], product.get());
      if (sums && (t == 1 || is_last)) {
        loops.product(v, after, width_, posterior, product.get());
        for (int32_t p = 0; p < trellis_graph_.num_emitting; ++p) {
          if (t == 1) sums->first[static_cast<size_t>(p)] += static_cast<double>(product[p]);
          if (is_last) sums->last[static_cast<size_t>(p)] += static_cast<double>(product[p]);
        }
      }
      if (t == 1) continue;
      // A power of 2, so that rounding errors do not accumulate over frames.
      const int power = std::ilogb(sum);
      const double pull = std::ldexp(1.0, scale.shift - power);
      T* before = f.get() + k * stride_;
      loops.product(at->e + (base + r) * stride_, after, width_, static_cast<T>(pull), before);
      if (frame_scores) rest += packed_.exponent * std::numbers::ln2 + scale.peak - std::log(pull);
      if (!sums) continue;
      const T factor = static_cast<T>(std::ldexp(deltas[i] / sums->unit / sum, power));
      T* to = block_f.get() + (filled + k) * stride_;
      for (int64_t p = 0; p < width_; ++p) to[p] = before[p] * factor;
      std::copy_n(at->v + (base_before + r) * stride_, width_,
                  block_v.get() + (filled + k) * stride_);
    }
    if (!sums || t == 1) return;
    filled += count;
    is_block_full = t == 2 || filled + count_at(t - 1) > kOuterRows;
  };
  parallel_rounds(
      static_cast<size_t>(last), parts,
      [&](size_t round, size_t part) {
        if (round % 64 == 0) poll_interrupt();
        if (round == 0) return;
        if (is_block_full) add_block(part);
        multiply(count, f.get(), packed_.backward, b.get(), part, parts);
      },
      [&](size_t round) { finish_frame(last - static_cast<int32_t>(round)); });
}

template <class T>
void DenseRecursion<T>::add_gradients(std::span<const double> deltas,
                                      std::span<const EmissionsGrad> emissions,
                                      std::span<double> arcs) const {
  if (arcs.empty()) return backward(deltas, emissions, nullptr, nullptr);
  const Factor& factor = *factor_;
  DenseArcSums sums;
  sums.first.resize(static_cast<size_t>(trellis_graph_.num_emitting));
  sums.last.resize(static_cast<size_t>(trellis_graph_.num_emitting));
  const int64_t size = padded(trellis_graph_.num_emitting, kOuterPad) * width_;
  sums.between = AlignedBuffer<double>(size);
  double largest = 0.0;
  for (size_t i = 0; i < examples_.size(); ++i) {
    if (failed_[i] || scores_[i] == -kInf) continue;
    largest = std::max(largest, std::abs(deltas[i]));
    if (examples_[i].frames == 0) sums.empty += deltas[i];
  }
  // A power of 2, so that the results do not depend on it.
  if (largest > 0.0 && largest < kInf) sums.unit = std::ldexp(1.0, std::ilogb(largest));
  backward(deltas, emissions, &sums, nullptr);

  auto add_to = [&](int32_t arc, double value) {
    if (arc >= 0) arcs[static_cast<size_t>(arc)] += value;
  };
  std::vector<double> starting(static_cast<size_t>(trellis_graph_.num_values));
  for (int32_t v = 0; v < trellis_graph_.num_values; ++v) {
    if (factor.begin[v].is_zero()) continue;
    for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.middle[v]; ++k) {
      const int32_t to = trellis_graph_.out.index[k], arc = trellis_graph_.out.arc[k];
      const double posterior =
          sums.first[static_cast<size_t>(to)] *
          ratio(times(factor.begin[v], factor.weight(arc)), shared_.first[static_cast<size_t>(to)]);
      add_to(arc, posterior);
      starting[static_cast<size_t>(v)] += posterior;
    }
  }
  factor.for_start_weights(
      [&](int32_t v, int32_t w) { add_to(w, starting[static_cast<size_t>(v)]); });
  const auto add_row = [&](int32_t v) {
    const double* const between = sums.between.get() + v * width_;
    const auto add_between = [&](int32_t arc, int32_t to) {
      arcs[static_cast<size_t>(arc)] += between[to] * sums.unit * factor.mantissa[arc] *
                                        pow2(factor.exponent[arc] - packed_.exponent);
    };
    if (const int32_t arc = shared_.first_arc[v]; arc >= 0)
      for (int32_t d = 0; d < trellis_graph_.num_emitting; ++d) add_between(arc + d, d);
    else
      for (int32_t k = trellis_graph_.out.offset[v]; k < trellis_graph_.middle[v]; ++k)
        add_between(trellis_graph_.out.arc[k], trellis_graph_.out.index[k]);
  };
  if (!sums.is_empty) {
    const size_t parts = num_parts(trellis_graph_.num_emitting * width_);
    parallel_for(parts, [&](size_t part) {
      const int64_t end = begin_of(part + 1, parts, trellis_graph_.num_emitting, 1);
      for (int64_t v = begin_of(part, parts, trellis_graph_.num_emitting, 1); v < end; ++v)
        add_row(static_cast<int32_t>(v));
    });
  }
  // After the last frame, a path ends in its state or takes one of its epsilon arcs, in proportion
  // to their scores. Non-emitting states are in topological order.
  std::vector<double> last = std::move(sums.last);
  last.resize(static_cast<size_t>(trellis_graph_.num_values), 0.0);
  for (int32_t v = 0; v < trellis_graph_.num_values; ++v)
    for (int32_t k = trellis_graph_.middle[v]; k < trellis_graph_.out.offset[v + 1]; ++k) {
      const int32_t to = trellis_graph_.out.index[k], arc = trellis_graph_.out.arc[k];
      const Scaled onwards = times(factor.weight(arc), factor.end[to]);
      const double posterior = last[static_cast<size_t>(v)] * ratio(onwards, factor.end[v]);
      last[static_cast<size_t>(to)] += posterior;
      const double empty = sums.empty * ratio(times(factor.begin[v], onwards), factor.empty);
      add_to(arc, posterior + empty);
    }
  factor.for_accept_weights([&](int32_t v, int32_t w) {
    add_to(w, last[static_cast<size_t>(v)] * ratio(factor.weight(w), factor.end[v]));
  });
  if (sums.empty != 0.0) factor.add_empty_posteriors(sums.empty, arcs);
}

template <class T>
std::vector<double> DenseRecursion<T>::frame_scores(size_t example) const {
  const auto count = static_cast<size_t>(examples_[example].frames);
  std::vector<double> out(count, -kInf);
  if (count == 0 || scores_[example] == -kInf) return out;
  std::vector<double> deltas(examples_.size(), 0.0);
  deltas[example] = 1.0;
  backward(deltas, {}, nullptr, &out);
  // The scales of b are included already; add the scales of v.
  const auto row = static_cast<int64_t>(std::ranges::find(order_, example) - order_.begin());
  double before = 0.0;
  for (size_t t = 1; t <= count; ++t) {
    const Scale& scale = scales_[static_cast<size_t>(row_of(static_cast<int32_t>(t)) + row)];
    before += scale.peak - scale.shift * std::numbers::ln2;
    if (t > 1) before += packed_.exponent * std::numbers::ln2;
    out[t - 1] += before;
  }
  return out;
}

#define ARCGRAD_INSTANTIATE(T)                                                           \
  template void DenseRecursion<T>::add_gradients(                                        \
      std::span<const double>, std::span<const EmissionsGrad>, std::span<double>) const; \
  template std::vector<double> DenseRecursion<T>::frame_scores(size_t) const;
ARCGRAD_INSTANTIATE(float)
ARCGRAD_INSTANTIATE(double)
#undef ARCGRAD_INSTANTIATE

}  // namespace arcgrad::trellis::dense
