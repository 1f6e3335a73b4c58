// Makes the leaves of an external array.

#include "arcgrad/autograd/external_array.h"

#include "arcgrad/core/graph_state.h"

namespace arcgrad {

int64_t ExternalArray::num_rows(size_t leaf) const {
  const auto& dense = leaves[leaf]->dense();
  return dense ? dense->frames : rows;
}

std::vector<Graph> make_leaves(const std::shared_ptr<const ExternalArray>& source,
                               std::span<const Weights> weights, bool calc_grad) {
  std::vector<Graph> out;
  out.reserve(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    out.emplace_back(source->leaves[i], weights[i], calc_grad);
    if (!calc_grad) continue;
    const auto var = out.back().var();
    var->source = source;
    var->leaf = i;
  }
  return out;
}

}  // namespace arcgrad
