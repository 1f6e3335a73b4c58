#pragma once

// The candidates of one frame of a beam search: merged by state in a hash table, then pruned.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "arcgrad/search/beam_decoder.h"
#include "arcgrad/search/hashing.h"
#include "arcgrad/search/trace.h"

namespace arcgrad {

/// A path of the search between two frames.
struct BeamHypothesis {
  double score = 0.0;    // with look-ahead
  uint64_t history = 0;  // a hash of the words so far; for open lexicons, of the tokens too
  uint32_t node = 0;     // of the lexicon
  int32_t last = 0;      // the last label
  uint32_t grammar = 0, hot = 0;
  uint32_t node_id = 0;  // of the trace
  uint32_t letters = 0;  // of the partial word; counted with UnfinishedWords only
};

/// The paths that may go on after a frame, at most one for each state.
class BeamCandidates {
 public:
  /// With `keeps_lattice`, candidates that lose against others go to the trace too.
  BeamCandidates(const DecoderOptions& options, bool keeps_lattice);

  /// No candidate below this score can be kept.
  double limit() const { return limit_; }
  void begin_frame();

  /// Adds a candidate, or merges it with one that has the same state.
  void add(const BeamHypothesis& to, const TraceEdge& edge) {
    if (!(to.score > kNegInf)) return;
    const size_t mask = cells_.size() - 1;
    size_t at = hash(to) & mask;
    for (; cells_[at].epoch == epoch_; at = (at + 1) & mask) {
      Extension& known = candidates_[cells_[at].candidate];
      if (!is_same(known.to, to)) continue;
      const bool is_better = to.score > known.to.score;
      if (is_sum_) {
        const double difference = std::exp(-std::abs(to.score - known.to.score));
        known.sum = is_better ? known.sum * difference + 1.0 : known.sum + difference;
      }
      if (keeps_lattice_) losers_.push_back({cells_[at].candidate, is_better ? known.edge : edge});
      if (is_better) {
        const double sum = known.sum;
        known = {to, sum, edge};
      }
      return;
    }
    cells_[at] = {epoch_, static_cast<uint32_t>(candidates_.size())};
    candidates_.push_back({to, 1.0, edge});
    if (2 * candidates_.size() > cells_.size()) grow();
  }
  /// Adds a candidate, and raises the limit; false if its score is below the limit.
  bool add_above_limit(const BeamHypothesis& to, const TraceEdge& edge) {
    if (to.score < limit_) return false;
    add(to, edge);
    if (to.score > best_) {
      best_ = to.score;
      limit_ = std::max(limit_, best_ - options_.beam - margin_);
    }
    return true;
  }
  /// Raises the limit after all candidates that stay at their nodes.
  void raise_limit();
  /// Moves the best candidates to `beam`, and adds them to the trace.
  void prune(std::vector<BeamHypothesis>& beam, SearchTrace& trace, SearchReport& report);

 private:
  struct Extension {
    BeamHypothesis to;
    double sum;  // for Merge::sum: of exp(score - to.score) of all merged candidates
    TraceEdge edge;
  };
  /// A candidate that lost against another one with the same state.
  struct Loser {
    uint32_t winner;
    TraceEdge edge;
  };
  /// A cell of the hash table; it is empty if the epoch is that of an earlier frame.
  struct Cell {
    uint32_t epoch = 0, candidate = 0;
  };

  bool is_same(const BeamHypothesis& a, const BeamHypothesis& b) const {
    return a.node == b.node && a.last == b.last && a.hot == b.hot &&
           (is_sum_ ? a.history == b.history : a.grammar == b.grammar);
  }
  uint64_t hash(const BeamHypothesis& h) const {
    const uint64_t key = (uint64_t{h.node} << 32U | static_cast<uint32_t>(h.last)) ^
                         mix_bits((is_sum_ ? h.history : h.grammar) + (uint64_t{h.hot} << 40U));
    return mix_bits(key);
  }
  void grow();

  const DecoderOptions& options_;
  const bool is_sum_, keeps_lattice_;
  /// A sum may have terms below the score of the worst hypothesis that is kept; those below by more
  /// than this margin are ignored.
  const double margin_;
  std::vector<Extension> candidates_;
  std::vector<Loser> losers_;
  std::vector<Cell> cells_;
  uint32_t epoch_ = 0;
  double best_ = kNegInf, limit_ = kNegInf;
  std::vector<double> order_;
  std::vector<uint32_t> kept_;
};

}  // namespace arcgrad
