#include "arcgrad/search/beam_candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace arcgrad {
namespace {

constexpr double kSumMargin = 12.0;

}  // namespace

BeamCandidates::BeamCandidates(const DecoderOptions& options, bool keeps_lattice)
    : options_(options),
      is_sum_(options.merge == Merge::sum),
      keeps_lattice_(keeps_lattice),
      margin_(is_sum_ ? kSumMargin : 0.0),
      cells_(1024) {}

void BeamCandidates::begin_frame() {
  candidates_.clear();
  losers_.clear();
  if (++epoch_ == 0) {
    cells_.assign(cells_.size(), {});
    epoch_ = 1;
  }
  limit_ = kNegInf;
}

void BeamCandidates::raise_limit() {
  best_ = kNegInf;
  for (const Extension& c : candidates_) best_ = std::max(best_, c.to.score);
  limit_ = best_ - options_.beam - margin_;
  const auto most = static_cast<size_t>(options_.max_active);
  if (candidates_.size() <= most || most == 0) return;
  order_.clear();
  for (const Extension& c : candidates_) order_.push_back(c.to.score);
  std::ranges::nth_element(order_, order_.begin() + static_cast<ptrdiff_t>(most) - 1,
                           std::greater());
  limit_ = std::max(limit_, order_[most - 1] - margin_);
}

void BeamCandidates::grow() {
  std::vector<Cell> old(2 * cells_.size());
  old.swap(cells_);
  for (const Cell& cell : old) {
    if (cell.epoch != epoch_) continue;
    const BeamHypothesis& to = candidates_[cell.candidate].to;
    size_t at = hash(to) & (cells_.size() - 1);
    while (cells_[at].epoch == epoch_) at = (at + 1) & (cells_.size() - 1);
    cells_[at] = cell;
  }
}

void BeamCandidates::prune(std::vector<BeamHypothesis>& beam, SearchTrace& trace,
                           SearchReport& report) {
  if (is_sum_)
    for (Extension& c : candidates_) c.to.score += std::log(c.sum);
  double best = kNegInf;
  for (const Extension& c : candidates_) best = std::max(best, c.to.score);
  double least = best - options_.beam;
  const auto most = static_cast<size_t>(options_.max_active);
  size_t num_ties = SIZE_MAX;  // how many candidates of the least score are kept
  if (candidates_.size() > most) {
    order_.clear();
    for (const Extension& c : candidates_) order_.push_back(c.to.score);
    std::ranges::nth_element(order_, order_.begin() + static_cast<ptrdiff_t>(most) - 1,
                             std::greater());
    const double last = order_[most - 1];
    if (last >= least) {
      least = last;
      num_ties = most;
      for (size_t i = 0; i < most; ++i) num_ties -= order_[i] > last;
    }
  }
  beam.clear();
  kept_.assign(candidates_.size(), 0);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    Extension& c = candidates_[i];
    if (c.to.score < best - options_.beam) {
      ++report.below_beam;
      continue;
    }
    if (c.to.score < least || (c.to.score == least && num_ties == 0)) {
      ++report.beyond_active;
      continue;
    }
    if (c.to.score == least) --num_ties;
    c.to.node_id = kept_[i] = trace.add_node(c.edge);
    beam.push_back(c.to);
  }
  for (const Loser& loser : losers_)
    if (kept_[loser.winner] != 0) trace.add_other(kept_[loser.winner], loser.edge);
  trace.end_frame();
}

}  // namespace arcgrad
