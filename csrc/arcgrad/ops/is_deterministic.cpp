#include <algorithm>

#include "arcgrad/ops.h"

namespace arcgrad {

bool is_deterministic(const Graph& graph) {
  const Topology& t = graph.topology();
  if (t.start().size() > 1) return false;
  const LabelIndex& index = t.index(Side::input);
  for (int32_t n = 0; n < t.num_nodes(); ++n) {
    const auto labels = std::span<const int32_t>(index.label)
                            .subspan(static_cast<size_t>(index.offset[n]),
                                     static_cast<size_t>(index.offset[n + 1] - index.offset[n]));
    if (!labels.empty() && labels.front() == kEpsilon) return false;
    if (std::ranges::adjacent_find(labels) != labels.end()) return false;
  }
  return true;
}

}  // namespace arcgrad
