#include "arcgrad/trellis/align/chain_spans.h"

#include "arcgrad/trellis/align/chain_frames.h"

namespace arcgrad::trellis {

std::vector<ChainSpan> chain_spans(const TokenChain& chain, const Emissions& emissions,
                                   const ChainStates& states) {
  const ChainFrames frames("align", chain, emissions);
  std::vector<ChainSpan> out;
  out.reserve(static_cast<size_t>(chain.num_tokens));
  const auto skip_to = [&](int32_t token, int32_t frame) {
    while (static_cast<int32_t>(out.size()) < token) out.push_back({frame, frame, 0.0});
  };
  const auto num_frames = static_cast<int32_t>(states.size());
  int32_t end = 0;
  for (int32_t t = 0; t < num_frames; ++t) {
    const int32_t state = states[static_cast<size_t>(t)];
    if (state % 2 == 0) continue;
    const int32_t token = (state + 1) / 2;
    if (static_cast<int32_t>(out.size()) < token) {
      skip_to(token - 1, end);
      out.push_back({t, t, 0.0});
    }
    out.back().score += frames.value(t, chain.token_slot[TokenChain::at(token)]);
    out.back().end = end = t + 1;
  }
  skip_to(chain.num_tokens, end);
  return out;
}

}  // namespace arcgrad::trellis
