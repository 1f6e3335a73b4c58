// The weights of the `lanes` and `csr` kernels, and how threads divide their frames. lanes.h
// explains the algorithm.

#include "arcgrad/trellis/kernels/lanes.h"

#include <algorithm>

#include "arcgrad/runtime/parallel.h"

namespace arcgrad::trellis {
namespace {

/// The exponent of an arc of weight -inf: below all others, but its sum with kDead does not
/// overflow.
constexpr int32_t kDeadWeight = -(1 << 29) + (1 << 25);

template <class T>
void fill_terms(const Rows& rows, const Factor& factor, std::vector<T>& mantissa,
                std::vector<Exponent<T>>& exponent) {
  mantissa.resize(rows.index.size());
  exponent.resize(rows.index.size());
  for (size_t k = 0; k < rows.arc.size(); ++k) {
    const int32_t a = rows.arc[k];
    mantissa[k] = a < 0 ? T{1} : static_cast<T>(factor.mantissa[a]);
    exponent[k] = a < 0 ? 0 : static_cast<Exponent<T>>(factor.exponent[a]);
    if (mantissa[k] == T{0}) exponent[k] = kDeadWeight;
  }
}

/// Converts the scores at a boundary, which are the same in all lanes.
template <class T>
void fill_scores(const std::vector<Scaled>& scores, std::vector<T>& mantissa,
                 std::vector<Exponent<T>>& exponent) {
  for (const Scaled& score : scores) {
    T m = static_cast<T>(score.mantissa);
    Exponent<T> q = score.is_zero() ? kDead : static_cast<Exponent<T>>(score.exponent);
    if (m >= T{2}) {  // rounded up
      m /= T{2};
      ++q;
    }
    mantissa.push_back(m);
    exponent.push_back(q);
  }
}

}  // namespace

template <>
const LanesTable<float>& lanes_loops<float>() {
  return ARCGRAD_LOOPS(lanes8_float);
}
template <>
const LanesTable<double>& lanes_loops<double>() {
  return ARCGRAD_LOOPS(lanes8_double);
}

namespace {

template <class T, int W>
const LanesTable<T>& table() {
  if constexpr (W == 1)
    return ARCGRAD_LOOPS(lanes1_double);
  else
    return lanes_loops<T>();
}

}  // namespace

template <class T>
RowWeights<T>::RowWeights(const Factor& factor) {
  fill_terms(factor.trellis_graph->in(), factor, in_mantissa, in_exponent);
  fill_terms(factor.trellis_graph->out, factor, out_mantissa, out_exponent);
  fill_scores(factor.begin, begin_mantissa, begin_exponent);
  fill_scores(factor.end, end_mantissa, end_exponent);
}

size_t num_lanes_parts(const TrellisGraph& graph) {
  // Enough terms that threads do not wait for each other longer than they work.
  constexpr int32_t kEnough = 2048;
  const int32_t terms = graph.out.num_terms();
  if (terms < kEnough) return 1;
  return static_cast<size_t>(std::min(get_num_threads(), 2 * terms / kEnough));
}

std::vector<Stage> make_stages(const TrellisGraph& graph, size_t parts) {
  if (parts == 1) return {{{0, graph.num_values}, {0, 0}}};
  const Rows& in = graph.in();
  constexpr int64_t kTermsPerState = 4;  // the cost of a state in addition to its terms
  const auto cost_before = [&](int32_t v) {
    return int64_t{in.offset[v]} + graph.out.offset[v] + kTermsPerState * v;
  };
  const auto cut = [&](int32_t begin, int32_t end) {
    std::vector<int32_t> cuts{begin};
    const int64_t first = cost_before(begin), whole = cost_before(end) - first;
    for (size_t k = 1; k < parts; ++k) {
      const int64_t target = first + whole * static_cast<int64_t>(k) / static_cast<int64_t>(parts);
      int32_t v = cuts.back();
      while (v < end && cost_before(v) < target) ++v;
      cuts.push_back(v);
    }
    cuts.push_back(end);
    return cuts;
  };
  std::vector<Stage> stages{{cut(0, graph.num_emitting), {graph.num_emitting, graph.num_emitting}}};
  for (int32_t begin = graph.num_emitting, end; begin < graph.num_values; begin = end) {
    const auto is_independent = [&](int32_t v) {
      for (int32_t k = in.offset[v]; k < in.offset[v + 1]; ++k)
        if (in.index[k] >= begin) return false;
      return true;
    };
    for (end = begin + 1; end < graph.num_values && is_independent(end);) ++end;
    constexpr int32_t kManyTerms = 2048;
    if (end - begin > 1 && in.offset[end] - in.offset[begin] >= kManyTerms)
      stages.push_back({cut(begin, end), {end, end}});
    else
      stages.back().rest.end = end;
  }
  return stages;
}

template <class T, int W>
RowsRun<T, W>::RowsRun(std::shared_ptr<const Factor> factor,
                       std::shared_ptr<const RowWeights<T>> weights)
    : factor_(std::move(factor)),
      weights_(std::move(weights)),
      loops_(&table<T, W>()),
      parts_(num_lanes_parts(*factor_->trellis_graph)),
      stages_(make_stages(*factor_->trellis_graph, parts_)) {
  const TrellisGraph& trellis_graph = *factor_->trellis_graph;
  shape_ = {trellis_graph.num_emitting, trellis_graph.num_values,
            static_cast<int32_t>(trellis_graph.labels.size()), trellis_graph.slot.data(),
            trellis_graph.labels.data()};
  const Rows& in = trellis_graph.in();
  in_ = {in.offset.data(), in.index.data(), weights_->in_mantissa.data(),
         weights_->in_exponent.data()};
  out_ = {trellis_graph.out.offset.data(), trellis_graph.out.index.data(),
          weights_->out_mantissa.data(), weights_->out_exponent.data()};
}

template struct RowWeights<float>;
template struct RowWeights<double>;
#define ARCGRAD_INSTANTIATE(T, W)                                \
  template RowsRun<T, W>::RowsRun(std::shared_ptr<const Factor>, \
                                  std::shared_ptr<const RowWeights<T>>);
ARCGRAD_INSTANTIATE(float, 8)
ARCGRAD_INSTANTIATE(double, 8)
ARCGRAD_INSTANTIATE(double, 1)
#undef ARCGRAD_INSTANTIATE

namespace {

DType type_of(const Factor& factor, std::span<const Emissions> examples) {
  DType dtype = factor.weights.dtype();
  for (const Emissions& e : examples) dtype = promote(dtype, e.dtype);
  return dtype;
}

}  // namespace

bool divides_lanes(const TrellisGraph& graph, size_t) { return num_lanes_parts(graph) > 1; }

std::unique_ptr<Run> run_csr(std::shared_ptr<const Factor> factor,
                             std::span<const Emissions> example, const RunOptions& options) {
  auto weights = std::make_shared<RowWeights<double>>(*factor);
  auto run = std::make_unique<RowsRun<double, 1>>(std::move(factor), std::move(weights));
  run->forward(example, options);
  return run;
}

std::unique_ptr<Run> run_lanes(std::shared_ptr<const Factor> factor,
                               std::span<const Emissions> examples, const RunOptions& options) {
  return dispatch(type_of(*factor, examples), [&](auto kind) -> std::unique_ptr<Run> {
    using T = decltype(kind);
    auto weights = std::make_shared<RowWeights<T>>(*factor);
    auto run = std::make_unique<RowsRun<T, 8>>(std::move(factor), std::move(weights));
    run->forward(examples, options);
    return run;
  });
}

}  // namespace arcgrad::trellis
