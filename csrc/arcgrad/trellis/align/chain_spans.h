#pragma once

// Where the tokens of a chain are in an alignment.

#include <vector>

#include "arcgrad/trellis/align/chain_best.h"

namespace arcgrad::trellis {

/// Frames [begin, end) of a token; empty if it is missing.
struct ChainSpan {
  int32_t begin, end;
  double score;  // the sum of its emissions
};

/// The span of each token of a chain. That of a missing token is empty, after the token before it.
std::vector<ChainSpan> chain_spans(const TokenChain& chain, const Emissions& emissions,
                                   const ChainStates& states);

}  // namespace arcgrad::trellis
