// Converts the weights of a graph factor, and sums paths of epsilon arcs at both ends of an
// example.

#include "arcgrad/trellis/kernels/kernel.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"

namespace arcgrad::trellis {
namespace {

/// The mantissas and exponents of weights that are all 0, as in most target graphs.
constexpr size_t kFewArcs = 4096;
const std::vector<double> ones(kFewArcs, 1.0), zeros(kFewArcs, 0.0);

}  // namespace

Factor::Factor(const char* op, std::shared_ptr<const TrellisGraph> arranged, Weights graph_weights)
    : trellis_graph(std::move(arranged)), weights(graph_weights.contiguous()) {
  const TrellisGraph& f = *trellis_graph;
  const auto count = static_cast<size_t>(f.num_weights);
  dispatch(weights.dtype(), [&](auto kind) {
    const auto view = weights.view<decltype(kind)>();
    const auto is_zero = [](auto w) { return w == 0; };
    is_unweighted = std::ranges::all_of(view.first(static_cast<size_t>(f.num_arcs())), is_zero);
    if (is_unweighted && count <= kFewArcs && std::ranges::all_of(view, is_zero)) {
      mantissa = std::span(ones).first(count);
      exponent = std::span(zeros).first(count);
      return;
    }
    own_mantissa_.resize(count);
    own_exponent_.resize(count);
    mantissa = own_mantissa_;
    exponent = own_exponent_;
    constexpr size_t kEnough = 50'000;  // for another thread to be worth it
    const size_t parts = count < kEnough ? 1 : static_cast<size_t>(get_num_threads());
    parallel_for(parts, [&](size_t part) {
      const size_t begin = count * part / parts, size = count * (part + 1) / parts - begin;
      if (bounded_exp(view.data() + begin, static_cast<int64_t>(size), kMaxExponent,
                      own_mantissa_.data() + begin, own_exponent_.data() + begin))
        return;
      for (size_t k = begin; k < begin + size; ++k)
        require(view[k] < std::numeric_limits<double>::infinity(), op,
                trellis_graph->describe_weight(k), " of the graph has the weight ", view[k],
                ", but a weight must be finite or -inf");
    });
  });

  const auto score_of_node = [&](int32_t index) {
    const Scaled w = weight(index);
    return w.is_zero() ? Scaled{} : renormalize(w.mantissa, w.exponent);
  };
  const auto num_values = static_cast<size_t>(f.num_values);
  begin.resize(num_values);
  // Each term to a non-emitting state adds to its sum, which is complete when the state is reached.
  std::vector<ScaledSum> sums(num_values - static_cast<size_t>(f.num_emitting));
  for (size_t k = 0; k < f.start.size(); ++k) begin[f.start[k]] = score_of_node(f.start_weight(k));
  for (int32_t v = 0; v < f.num_values; ++v) {
    if (v >= f.num_emitting) {
      ScaledSum& sum = sums[v - f.num_emitting];
      sum.add(begin[v].mantissa, begin[v].exponent);
      begin[v] = sum.get();
    }
    if (begin[v].is_zero()) continue;
    for (int32_t k = f.middle[v]; k < f.out.offset[v + 1]; ++k) {
      const Scaled w = weight(f.out.arc[k]);
      sums[f.out.index[k] - f.num_emitting].add(w.mantissa * begin[v].mantissa,
                                                w.exponent + begin[v].exponent);
    }
  }
  end.resize(num_values);
  for (size_t k = 0; k < f.accept.size(); ++k) end[f.accept[k]] = score_of_node(f.accept_weight(k));
  for (int32_t v = f.num_values - 1; v >= 0; --v) {
    ScaledSum sum;
    sum.add(end[v].mantissa, end[v].exponent);
    for (int32_t k = f.middle[v]; k < f.out.offset[v + 1]; ++k) {
      const Scaled w = weight(f.out.arc[k]), x = end[f.out.index[k]];
      sum.add(w.mantissa * x.mantissa, w.exponent + x.exponent);
    }
    end[v] = sum.get();
  }
  ScaledSum sum;
  for (size_t k = 0; k < f.accept.size(); ++k) {
    const Scaled path = product(begin[f.accept[k]], weight(f.accept_weight(k)));
    sum.add(path.mantissa, path.exponent);
  }
  empty = sum.get();
}

void Factor::add_empty_posteriors(double delta, std::span<double> to) const {
  for_start_weights(
      [&](int32_t v, int32_t w) { to[w] += delta * quotient(product(weight(w), end[v]), empty); });
  for_accept_weights([&](int32_t v, int32_t w) {
    to[w] += delta * quotient(product(begin[v], weight(w)), empty);
  });
}

std::vector<double> Run::frame_scores(size_t) const { return {}; }

}  // namespace arcgrad::trellis
