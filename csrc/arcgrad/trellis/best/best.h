#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/core/weights.h"
#include "arcgrad/trellis/best/alignment.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// Scores of all frames are kept up to this many bytes. Beyond it, those of few frames are kept and
/// the others computed again, which is faster than getting fresh memory from the system.
inline constexpr int64_t kBestBytes = int64_t{24} << 20;

/// The best path through the product of the graph with each example: the path and the score, to the
/// last bit, that find_best_path() finds in the composed graph. `form` belongs to the graph and has
/// no epsilon cycle. Without `with_paths` scores and starts are enough.
std::vector<BestAlignment> find_best(const char* op, const TrellisGraph& form,
                                     const Weights& weights, std::span<const Emissions> examples,
                                     bool with_paths, int64_t max_bytes = kBestBytes);

}  // namespace arcgrad::trellis
