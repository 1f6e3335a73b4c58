#include "arcgrad/trellis/kernel.h"

#include <algorithm>
#include <cmath>

#include "arcgrad/error.h"
#include "arcgrad/graph.h"

namespace arcgrad::trellis {

Factor::Factor(const char* op, std::shared_ptr<const Form> graph_form, Weights graph_weights)
    : form(std::move(graph_form)), weights(graph_weights.contiguous()) {
  const Form& f = *form;
  const auto count = static_cast<size_t>(f.num_arcs);
  mantissa.resize(count);
  exponent.resize(count);
  Buffer<double> plain(count);
  dispatch(weights.dtype(),
           [&](auto kind) { std::ranges::copy(weights.view<decltype(kind)>(), plain.begin()); });
  for (size_t a = 0; a < count; ++a) {
    is_unweighted &= plain[a] == 0.0;
    if (!(plain[a] < std::numeric_limits<double>::infinity())) [[unlikely]]
      fail(op, "arc ", a, " of the graph has the weight ", plain[a],
           ", but a weight must be finite or -inf");
  }
  if (is_unweighted) {
    std::ranges::fill(mantissa, 1.0);
    std::ranges::fill(exponent, 0.0);
  } else {
    split_exp(plain.data(), static_cast<int64_t>(count), mantissa.data(), exponent.data());
    for (size_t a = 0; a < count; ++a) {
      if (plain[a] == -std::numeric_limits<double>::infinity()) mantissa[a] = 0.0;
      exponent[a] = std::clamp(exponent[a], -kMaxExponent, kMaxExponent);
    }
  }

  auto weight = [&](int32_t arc) {
    return arc < 0 ? Scaled::one() : Scaled{mantissa[arc], exponent[arc]};
  };
  const auto num_values = static_cast<size_t>(f.num_values);
  begin.resize(num_values);
  for (int32_t v : f.start) begin[v] = Scaled::one();
  for (int32_t s = f.num_places; s < f.num_values; ++s) {
    ScaledSum sum;
    sum.add(begin[s].mantissa, begin[s].exponent);
    for (int32_t k = f.in.offset[s]; k < f.in.offset[s + 1]; ++k) {
      const Scaled w = weight(f.in.arc[k]), x = begin[f.in.index[k]];
      sum.add(w.mantissa * x.mantissa, w.exponent + x.exponent);
    }
    begin[s] = sum.get();
  }
  end.resize(num_values);
  for (int32_t v : f.accept) end[v] = Scaled::one();
  for (int32_t v = f.num_values - 1; v >= 0; --v) {
    ScaledSum sum;
    sum.add(end[v].mantissa, end[v].exponent);
    for (int32_t k = f.out.offset[v]; k < f.out.offset[v + 1]; ++k) {
      if (f.out.index[k] < f.num_places) continue;
      const Scaled w = weight(f.out.arc[k]), x = end[f.out.index[k]];
      sum.add(w.mantissa * x.mantissa, w.exponent + x.exponent);
    }
    end[v] = sum.get();
  }
}

std::vector<double> Run::frame_scores(size_t) const { return {}; }

void check_emissions(const char* op, std::span<const int32_t> labels, const Emissions& emissions,
                     int32_t t) {
  for (int32_t label : labels) {
    if (label >= emissions.labels) break;
    const int64_t at = t * emissions.row_stride + label * emissions.col_stride;
    const double w = dispatch(emissions.dtype, [&](auto kind) {
      return static_cast<double>(static_cast<const decltype(kind)*>(emissions.data)[at]);
    });
    if (!(w < std::numeric_limits<double>::infinity()))
      fail(op, "the emission of label ", label, " at frame ", t, " is ", w,
           ", but it must be finite or -inf");
  }
}

void fail_bad_emission(const char* op, const Form& form, const Emissions& emissions) {
  for (int32_t t = 0; t < emissions.frames; ++t) check_emissions(op, form, emissions, t);
  fail(op, "an emission is NaN or +inf");
}

}  // namespace arcgrad::trellis
