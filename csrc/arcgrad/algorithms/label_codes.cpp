#include "arcgrad/algorithms/label_codes.h"

#include <algorithm>

#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

LabelCodes::LabelCodes(const Topology& topology) : ilabel_(topology.ilabel()) {
  if (topology.is_acceptor()) return;
  const auto olabel = topology.olabel();
  pairs_.reserve(ilabel_.size() + 1);
  pairs_.push_back({kEpsilon, kEpsilon});
  for (size_t a = 0; a < ilabel_.size(); ++a) pairs_.push_back({ilabel_[a], olabel[a]});
  interruptible_sort(pairs_);
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  codes_.resize(ilabel_.size());
  InterruptPoll poll;
  for (size_t a = 0; a < ilabel_.size(); ++a, poll())
    codes_[a] = static_cast<uint32_t>(
        std::ranges::lower_bound(pairs_, std::pair(ilabel_[a], olabel[a])) - pairs_.begin());
}

int64_t LabelCodes::size() const {
  if (!codes_.empty()) return std::ssize(pairs_);
  return ilabel_.empty() ? 1 : int64_t{*std::ranges::max_element(ilabel_)} + 2;
}

}  // namespace arcgrad
