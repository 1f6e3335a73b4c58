// Views of emissions and of their gradients, and the check for NaN and +inf.

#include "arcgrad/trellis/emissions.h"

#include <algorithm>
#include <limits>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/key_index.h"
#include "arcgrad/runtime/thresholds.h"

namespace arcgrad::trellis {

Emissions view_emissions(const Graph& graph) {
  const auto [frames, labels] = *graph.topology().dense();
  const Weights& weights = graph.raw_weights();
  const Layout& layout = weights.layout();
  Emissions view{weights.data(), weights.dtype(), frames, labels, labels, 1};
  if (layout.rows == frames && layout.cols == labels) {
    view.row_stride = layout.row_stride;
    view.col_stride = layout.col_stride;
  }
  return view;
}

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

void fail_bad_emission(const char* op, std::span<const int32_t> labels,
                       const Emissions& emissions) {
  for (int32_t t = 0; t < emissions.frames; ++t) check_emissions(op, labels, emissions, t);
  fail(op, "an emission is NaN or +inf");
}

void EmissionsGrad::clear(int64_t first, int64_t count) const {
  if (initial) return initial->set_rows(example, scale, *this, first, count);
  dispatch(dtype, [&](auto kind) {
    using G = decltype(kind);
    if (row_stride == labels)
      std::fill_n(row<G>(first), count * labels, G{0});
    else
      for (int64_t t = first; t < first + count; ++t) std::fill_n(row<G>(t), labels, G{0});
  });
}

EmissionsGrads::EmissionsGrads(std::vector<Gradient*> grads, std::vector<int32_t> labels)
    : grads_(std::move(grads)),
      labels_(std::move(labels)),
      is_unset_(grads_.size()),
      own_(grads_.size()) {
  KeyIndex<const void*> taken;
  size_t num_unset = 0;
  for (size_t i = 0; i < grads_.size(); ++i) {
    if (!grads_[i]) continue;
    if (taken.add(grads_[i]).second)
      is_unset_[i] = grads_[i]->take_unset();
    else
      own_[i] = Weights::zeros(grads_[i]->size(), grads_[i]->dtype());
    if (is_unset_[i]) num_unset += static_cast<size_t>(grads_[i]->size());
  }
  const auto bytes = static_cast<int64_t>(num_unset * sizeof(float));
  is_large_ = bytes >= thresholds.streamed_gradient;
}

EmissionsGrad EmissionsGrads::at(size_t i) const {
  if (!grads_[i]) return {};
  const Weights& to = own_[i] ? own_[i] : grads_[i]->sum();
  const Layout& layout = to.layout();
  EmissionsGrad out;
  out.data = const_cast<void*>(to.data());
  out.dtype = to.dtype();
  out.labels = labels_[i];
  out.row_stride = layout.is_contiguous() ? labels_[i] : layout.row_stride;
  out.is_unset = is_unset_[i];
  out.is_large = is_unset_[i] && is_large_;
  return out;
}

void EmissionsGrads::join() const {
  for (size_t i = 0; i < own_.size(); ++i)
    if (own_[i]) grads_[i]->sum().add(own_[i]);
}

}  // namespace arcgrad::trellis
