#include "arcgrad/algorithms/label_codes.h"

#include <algorithm>

#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

LabelCodes::LabelCodes(const Topology& topology) {
  const auto ilabel = topology.ilabel(), olabel = topology.olabel();
  codes_.resize(ilabel.size());
  if (topology.is_acceptor()) {
    for (size_t a = 0; a < ilabel.size(); ++a) codes_[a] = static_cast<uint32_t>(ilabel[a]) + 1;
    return;
  }
  pairs_.reserve(ilabel.size() + 1);
  pairs_.push_back({kEpsilon, kEpsilon});
  for (size_t a = 0; a < ilabel.size(); ++a) pairs_.push_back({ilabel[a], olabel[a]});
  interruptible_sort(pairs_);
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  InterruptPoll poll;
  for (size_t a = 0; a < ilabel.size(); ++a, poll())
    codes_[a] = static_cast<uint32_t>(
        std::ranges::lower_bound(pairs_, std::pair(ilabel[a], olabel[a])) - pairs_.begin());
}

}  // namespace arcgrad
