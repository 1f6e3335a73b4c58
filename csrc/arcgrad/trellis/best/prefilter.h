#pragma once

#include <span>
#include <vector>

#include "arcgrad/core/weights.h"
#include "arcgrad/trellis/best/alignment.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// Finds best paths of some examples, by ascending length, as find_best() does but faster: scores
/// in floats, with a bound on their errors, tell which few arcs may be on a best path, and only
/// those are scored exactly. `T` is the type of the weights of the product.
///
/// Returns which examples it found. For the others, more arcs are as good or nearly so than are
/// worth following, the weights are too far apart, or one is NaN or +inf.
template <class T>
std::vector<bool> screen_best(const TrellisGraph& form, const Weights& weights,
                              std::span<const Emissions* const> examples,
                              std::span<BestAlignment* const> out, int64_t max_bytes);

/// The most examples it takes.
size_t most_screened(const TrellisGraph& form);

}  // namespace arcgrad::trellis
