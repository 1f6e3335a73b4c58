// The backward pass of the `lanes` and `csr` kernels. lanes.h explains the algorithm.

#include <algorithm>
#include <cmath>

#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/kernels/lanes.h"

namespace arcgrad::trellis {
namespace {

/// Posteriors of arcs are summed in the type of the recursion for this many frames, then in double.
constexpr int32_t kFramesPerFlush = 32;
/// The posteriors of a frame are summed in blocks of this many states, so that the order of the sum
/// does not depend on the threads.
constexpr int32_t kStatesPerSum = 128;

}  // namespace

template <class T, int W>
struct RowsRun<T, W>::Backward {
  std::span<const double> deltas;
  std::span<const EmissionsGrad> emissions;
  std::span<double> arcs;
  std::vector<double>* frame_scores = nullptr;
  size_t frame_scores_of = 0;
  std::array<bool, W> is_wanted{};
  std::array<double, W> first_scale{}, last_scale{};  // delta / sum of the first and last frame
  RowsSegment segment{};
};

template <class T, int W>
void RowsRun<T, W>::add_boundary(Backward& state, int32_t lane) const {
  // The score of paths through the arc from state i to the non-emitting state s is v[i] * w *
  // end[s].
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  const int32_t t = examples_[lane].frames;
  const Scores<T> v = values(t, state.segment);
  const double base = static_cast<double>(base_[static_cast<size_t>(t) * W + lane]);
  for (int32_t i = 0; i < trellis_graph.num_values; ++i)
    for (int32_t k = trellis_graph.middle[i]; k < trellis_graph.out.offset[i + 1]; ++k) {
      const int32_t a = trellis_graph.out.arc[k], s = trellis_graph.out.index[k];
      if (a < 0 || factor_->end[s].is_zero()) continue;
      const size_t at = static_cast<size_t>(i) * W + lane;
      const double m =
          static_cast<double>(v.mantissa[at]) * factor_->mantissa[a] * factor_->end[s].mantissa;
      if (m == 0.0) continue;
      const double q = static_cast<double>(v.exponent[at]) + base + factor_->exponent[a] +
                       factor_->end[s].exponent - total_[lane].exponent;
      state.arcs[a] += m * pow2(std::min(q, 100.0)) * state.last_scale[lane];
    }
  factor_->for_accept_weights([&](int32_t state_at_end, int32_t w) {
    const size_t at = static_cast<size_t>(state_at_end) * W + lane;
    const Scaled before{static_cast<double>(v.mantissa[at]),
                        static_cast<double>(v.exponent[at]) + base};
    state.arcs[w] += quotient(product(before, factor_->weight(w)), {1.0, total_[lane].exponent}) *
                     state.last_scale[lane];
  });
}

template <class T, int W>
void RowsRun<T, W>::add_start_weights(Backward& state, int32_t lane, Scores<T> b,
                                      double base) const {
  const bool is_empty = examples_[lane].frames == 0;
  factor_->for_start_weights([&](int32_t v, int32_t w) {
    const size_t at = static_cast<size_t>(v) * W + lane;
    const Scaled after = is_empty ? factor_->end[v]
                                  : Scaled{static_cast<double>(b.mantissa[at]),
                                           static_cast<double>(b.exponent[at]) + base};
    state.arcs[w] += quotient(product(factor_->weight(w), after), {1.0, total_[lane].exponent}) *
                     (is_empty ? state.last_scale : state.first_scale)[lane];
  });
}

template <class T, int W>
void RowsRun<T, W>::add_rows(Backward& state, int32_t t, States slots, const T* posteriors,
                             const T* scale) const {
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  T* row[W] = {};
  int32_t count[W] = {};
  for (size_t l = 0; l < examples_.size(); ++l) {
    const EmissionsGrad& grad = state.emissions[l];
    if (!grad.data || scale[l] == T{0}) continue;
    count[l] = count_[l] - slots.begin;
    if ((grad.dtype == DType::float64) == (sizeof(T) == 8)) {
      row[l] = grad.row<T>(t - 1);
      continue;
    }
    dispatch(grad.dtype, [&](auto kind) {
      using G = decltype(kind);
      G* const to = grad.row<G>(t - 1);
      for (int32_t s = slots.begin; s < std::min(slots.end, count_[l]); ++s)
        to[trellis_graph.labels[s]] += static_cast<G>(posteriors[static_cast<size_t>(s) * W + l]);
    });
  }
  loops_->scatter(shape_.slots(slots.begin, slots.end - slots.begin),
                  posteriors + int64_t{slots.begin} * W, row, count);
}

template <class T, int W>
void RowsRun<T, W>::run_backward(Backward& state) const {
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  const size_t size = frame_size(), num_slots = trellis_graph.labels.size() * W;
  const int32_t num_sums = (shape_.num_emitting + kStatesPerSum - 1) / kStatesPerSum;
  static thread_local std::vector<T> own_reals, own_terms;
  static thread_local std::vector<Q> own_ints;
  // Other threads must not see their own vectors.
  std::vector<T>&reals = own_reals, &terms = own_terms;
  std::vector<Q>& ints = own_ints;
  const size_t num_terms = state.arcs.empty() ? 0 : trellis_graph.out.index.size() * W;
  reals.resize(2 * size + static_cast<size_t>(shape_.num_emitting + num_sums) * W + 3 * num_slots);
  ints.resize(2 * size + 2 * num_slots);
  const Scores<T> b{reals.data(), ints.data()}, g{reals.data() + size, ints.data() + size};
  const Scores<T> both_emissions{g.mantissa + size, g.exponent + size};
  T* const posterior = both_emissions.mantissa + 2 * num_slots;
  T* const slots = posterior + static_cast<size_t>(shape_.num_emitting) * W;
  T* const sums = slots + num_slots;
  terms.assign(num_terms, T{0});
  std::fill_n(b.mantissa, size, T{0});
  std::fill_n(b.exponent, size, Q{kDead});
  const auto emissions = [&](int32_t t) -> Scores<T> {
    const size_t offset = static_cast<size_t>(t % 2) * num_slots;
    return {both_emissions.mantissa + offset, both_emissions.exponent + offset};
  };

  std::array<int64_t, W> base{};  // of b
  Q unit[W] = {}, unit_before[W] = {};
  T delta[W] = {}, scale[W] = {};
  for (size_t l = 0; l < examples_.size(); ++l)
    if (state.is_wanted[l]) delta[l] = static_cast<T>(state.deltas[l]);
  auto flush = [&] {
    for (size_t k = 0; k < trellis_graph.out.index.size(); ++k) {
      const int32_t a = trellis_graph.out.arc[k];
      if (a < 0) continue;
      double sum = 0.0;
      for (int l = 0; l < W; ++l) sum += static_cast<double>(terms[k * W + l]);
      state.arcs[a] += sum;
    }
    std::fill(terms.begin(), terms.end(), T{0});
  };
  const auto begin_frame = [&](int32_t t) {
    for (size_t l = 0; l < examples_.size(); ++l)
      if (examples_[l].frames == t && state.is_wanted[l])
        for (size_t v = 0; v < static_cast<size_t>(shape_.num_values); ++v) {
          b.mantissa[v * W + l] = weights_->end_mantissa[v];
          b.exponent[v * W + l] = weights_->end_exponent[v];
        }
    // The unit of posteriors changes only near frames where exponents were rebased.
    if (t != frames_ && t % kFramesPerRebase > 1 && t % kFramesPerRebase < kFramesPerRebase - 1)
      return;
    for (int l = 0; l < W; ++l) {
      const double total = total_[l].is_zero() ? 0.0 : total_[l].exponent;
      const auto at = static_cast<size_t>(t) * W + l;
      const double limit = 1 << 30;
      const auto unit_at = [&](int64_t before) {
        const double q = total - static_cast<double>(before + base[l]);
        return static_cast<Q>(std::clamp(q, -limit, limit));
      };
      unit[l] = unit_at(base_[at]);
      unit_before[l] = unit_at(base_[at - W]);
    }
  };
  // States are ordered by node, so if there are as many as labels, state p often has slot p.
  bool has_identity = shape_.num_emitting == shape_.num_slots;
  for (int32_t p = 0; has_identity && p < shape_.num_emitting; ++p)
    has_identity = shape_.slot[p] == p;
  const auto find_posteriors = [&](int32_t t, size_t part) {
    const auto first_sum = [&](size_t k) { return static_cast<int32_t>(k * num_sums / parts_); };
    for (int32_t k = first_sum(part); k < first_sum(part + 1); ++k) {
      const States states{k * kStatesPerSum,
                          std::min((k + 1) * kStatesPerSum, shape_.num_emitting)};
      loops_->posteriors(shape_, states, emissions(t), values(t, state.segment), b, unit, posterior,
                         sums + k * W, g);
    }
    for (size_t l = part; l < state.emissions.size(); l += parts_)
      if (state.emissions[l].is_unset && t <= examples_[l].frames)
        state.emissions[l].clear(t - 1, 1);
  };
  const auto finish_posteriors = [&](int32_t t) {
    T sum[W] = {};
    for (int32_t k = 0; k < num_sums; ++k)
      for (int l = 0; l < W; ++l) sum[l] += sums[k * W + l];
    // The sum is 0 for an example that has ended or has no gradient.
    for (int l = 0; l < W; ++l) scale[l] = sum[l] > T{0} ? delta[l] / sum[l] : T{0};
    for (size_t l = 0; l < examples_.size(); ++l)
      if (t == examples_[l].frames && sum[l] > T{0})
        state.last_scale[l] = state.deltas[l] / static_cast<double>(sum[l]);
    for (size_t l = 0; t == 1 && l < examples_.size(); ++l)
      if (sum[l] > T{0}) state.first_scale[l] = state.deltas[l] / static_cast<double>(sum[l]);
    if (state.frame_scores) {
      const size_t l = state.frame_scores_of;
      if (t <= examples_[l].frames)
        (*state.frame_scores)[t - 1] =
            std::log(static_cast<double>(sum[l])) + total_[l].exponent * (kLn2High + kLn2Low);
    }
    if (state.emissions.empty() || has_identity) return;
    std::fill_n(slots, num_slots, T{0});
    loops_->collect(shape_, posterior, scale, slots);
  };
  const auto pull_back = [&](int32_t t, States states) {
    if (states.begin == states.end) return;
    const Scores<T> before = values(t - 1, state.segment);
    loops_->backward(shape_, states, out_, g, b, before.mantissa, before.exponent, unit_before,
                     scale, num_terms ? terms.data() : nullptr);
  };
  const auto finish_frame = [&](int32_t t) {
    if (t % kFramesPerRebase == 0) rebase(t, b, base.data());
    if (num_terms && t % kFramesPerFlush == 0) flush();
    if (t > 1) begin_frame(t - 1);
  };

  // A frame has a round for the posteriors and one for each stage, the last stage first.
  const size_t num_stages = stages_.size(), num_rounds = num_stages + 1;
  if (frames_ > 0) begin_frame(frames_);
  for (int32_t last = frames_, first; last >= 1; last = first - 1) {
    first = stride_ == 1 ? 1 : (last - 1) / stride_ * stride_ + 1;
    values(first, state.segment);  // recomputes the frames up to `last`
    split(last, {0, shape_.num_slots}, emissions(last));
    parallel_rounds(
        static_cast<size_t>(last - first + 1) * num_rounds, parts_,
        [&](size_t round, size_t part) {
          const int32_t t = last - static_cast<int32_t>(round / num_rounds);
          const size_t k = round % num_rounds;
          if (k == 0) {
            if (t % kFramesPerRebase == 0) poll_interrupt();
            find_posteriors(t, part);
            if (t > first) split(t - 1, slots_of(part), emissions(t - 1));
          } else {
            pull_back(t, stages_[num_stages - k].part(part));
          }
          if (k < num_stages || state.emissions.empty()) return;
          if (has_identity) loops_->weigh(slots_of(part), posterior, scale, slots);
          add_rows(state, t, slots_of(part), slots, scale);
        },
        [&](size_t round) {
          const int32_t t = last - static_cast<int32_t>(round / num_rounds);
          const size_t k = round % num_rounds;
          if (k == 0) finish_posteriors(t);
          if (k < num_stages) pull_back(t, stages_[num_stages - k - 1].rest);
          if (k == num_stages) finish_frame(t);
        });
  }
  if (num_terms) flush();
  if (!state.arcs.empty())
    for (size_t l = 0; l < examples_.size(); ++l) {
      if (!state.is_wanted[l]) continue;
      if (examples_[l].frames == 0) state.last_scale[l] = state.deltas[l] / total_[l].mantissa;
      add_boundary(state, static_cast<int32_t>(l));
      add_start_weights(state, static_cast<int32_t>(l), b, static_cast<double>(base[l]));
    }
}

template <class T, int W>
void RowsRun<T, W>::add_gradients(std::span<const double> deltas,
                                  std::span<const EmissionsGrad> emissions,
                                  std::span<double> arcs) const {
  Backward state;
  state.deltas = deltas;
  state.emissions = emissions;
  state.arcs = arcs;
  bool any = false;
  for (size_t l = 0; l < examples_.size(); ++l)
    any |= state.is_wanted[l] = !total_[l].is_zero() && deltas[l] != 0.0;
  if (any) run_backward(state);
}

template <class T, int W>
std::vector<double> RowsRun<T, W>::frame_scores(size_t i) const {
  std::vector<double> out(static_cast<size_t>(examples_[i].frames));
  const std::vector<double> ones(examples_.size(), 1.0);
  Backward state;
  state.deltas = ones;
  state.frame_scores = &out;
  state.frame_scores_of = i;
  for (size_t l = 0; l < examples_.size(); ++l) state.is_wanted[l] = !total_[l].is_zero();
  run_backward(state);
  return out;
}

#define ARCGRAD_INSTANTIATE(T, W)                                                        \
  template void RowsRun<T, W>::add_gradients(                                            \
      std::span<const double>, std::span<const EmissionsGrad>, std::span<double>) const; \
  template std::vector<double> RowsRun<T, W>::frame_scores(size_t) const;
ARCGRAD_INSTANTIATE(float, 8)
ARCGRAD_INSTANTIATE(double, 8)
ARCGRAD_INSTANTIATE(double, 1)
#undef ARCGRAD_INSTANTIATE

}  // namespace arcgrad::trellis
