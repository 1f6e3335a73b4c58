#pragma once

// Posteriors of the states of an alignment: how likely each is at its frame among all alignments.

#include <vector>

#include "arcgrad/trellis/align/chain_best.h"

namespace arcgrad::trellis {

/// The posterior of the state of each frame, among all alignments whose tokens are at each frame at
/// most `reach` tokens away from those of `states`.
std::vector<double> chain_posteriors(const char* op, const TokenChain& chain,
                                     const Emissions& emissions, const ChainStates& states,
                                     int32_t reach);

}  // namespace arcgrad::trellis
