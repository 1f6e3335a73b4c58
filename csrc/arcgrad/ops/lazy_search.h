#pragma once

// Beam search through a composition that is made where the beam goes.

#include <vector>

#include "arcgrad/ops.h"

namespace arcgrad {

/// beam_search() of the composition of `factors` from the left; see lazy_composition.h.
Graph lazy_beam_search(const std::vector<Graph>& factors, const Graph& emissions,
                       const Pruning& pruning = {});

}  // namespace arcgrad
