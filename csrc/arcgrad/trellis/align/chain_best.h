#pragma once

// The best alignment of a chain with emissions, exactly, in memory that is bounded for any length.

#include <cstdint>
#include <vector>

#include "arcgrad/core/semiring.h"
#include "arcgrad/trellis/align/chain.h"
#include "arcgrad/trellis/emissions.h"

namespace arcgrad::trellis {

/// The state that consumes a frame: 2 * k for gap k, 2 * k - 1 for token k.
using ChainStates = std::vector<int32_t>;

struct ChainAlignment {
  double score = kNegInf;  // -inf if no alignment fits
  ChainStates states;      // of each frame; empty if no alignment fits
  int32_t width = 0;       // the number of tokens in the window of the last pass
  int32_t passes = 0;      // the number of passes; each is with a wider window
};

struct ChainBestOptions {
  int32_t width = 0;    // tokens in the window of the first pass; 0 to choose
  int32_t segment = 0;  // frames between two saved rows; 0 to choose
};

/// Finds the best alignment. Of equally good ones it is that of the best path of the product of the
/// emissions with the alignment graph. Throws if an emission is NaN or +inf.
ChainAlignment align_chain(const char* op, const TokenChain& chain, const Emissions& emissions,
                           const ChainBestOptions& options);

}  // namespace arcgrad::trellis
