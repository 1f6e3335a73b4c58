#include <algorithm>

#include "arcgrad/stream.h"
#include "arcgrad/tape.h"

namespace arcgrad {
namespace {

/// The part of a sum of moved weights that falls on output arcs from `begin` on.
template <class From, class To>
void add_block(std::span<const From> from, const ArcMap& map, int64_t begin, double factor,
               std::span<To> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (!map.arcs().empty()) {
    const int32_t* arc = map.arcs().data() + begin;
    for (int64_t k = 0; k < count; ++k)
      if (arc[k] >= 0) out[k] += static_cast<To>(factor * from[arc[k]]);
    return;
  }
  const int64_t shift = begin + map.shift();
  const int64_t first = std::max<int64_t>(0, -shift);
  const int64_t last = std::min(count, static_cast<int64_t>(from.size()) - shift);
  if (factor == 1.0)
    for (int64_t k = first; k < last; ++k) out[k] += static_cast<To>(from[k + shift]);
  else
    for (int64_t k = first; k < last; ++k) out[k] += static_cast<To>(factor * from[k + shift]);
}

}  // namespace

Weights move_weights(int64_t size, DType dtype, std::span<const Moved> inputs) {
  // A scatter reaches every part of the output.
  if (std::ranges::any_of(inputs, [](const Moved& input) { return input.map.is_scatter(); })) {
    Weights out = Weights::zeros(size, dtype);
    for (const Moved& input : inputs) input.map.apply(input.graph.weights(), out, input.factor);
    return out;
  }
  Weights out = Weights::uninitialized(size, dtype);
  std::vector<Weights> weights;
  for (const Moved& input : inputs) weights.push_back(input.graph.weights());
  dispatch(dtype, [&](auto to_kind) {
    using To = decltype(to_kind);
    write_blocks(out.fill<To>(), [&](size_t begin, std::span<To> block) {
      std::ranges::fill(block, To{0});
      for (size_t i = 0; i < inputs.size(); ++i)
        dispatch(weights[i].dtype(), [&](auto kind) {
          const auto from = weights[i].view<decltype(kind)>();
          add_block(from, inputs[i].map, static_cast<int64_t>(begin), inputs[i].factor, block);
        });
    });
  });
  return out;
}

}  // namespace arcgrad
