#pragma once

// Phrases with boosts, matched beside a search.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/tokens/tokens.h"

namespace arcgrad {

/// An Aho-Corasick automaton of phrases: sequences of symbols, each with a boost.
///
/// The scores of all steps of a sequence of symbols and of finish() add up to the sum of the boosts
/// of all occurrences of phrases in it. A partial match gets a part of the boost in advance, in
/// proportion to its length, which is taken back when the match fails. The symbol `boundary` marks
/// the edges of words; several in a row count as one.
class HotwordMatcher {
 public:
  HotwordMatcher(const Sequences& phrases, std::span<const float> boosts, int32_t boundary);

  struct Advance {
    uint32_t state;
    float score;
  };
  Advance next(uint32_t state, int32_t symbol) const;
  /// Takes back what partial matches got in advance.
  float finish(uint32_t state) const { return -nodes_[state].advance; }
  /// Whether a state is inside of a phrase that has got something in advance.
  bool is_inside(uint32_t state) const { return nodes_[state].advance != 0.0F; }
  /// The largest score of a step.
  float max_score() const { return max_score_; }

 private:
  struct MatchNode {
    uint32_t first_child = 0, end_child = 0;
    int32_t symbol = 0;
    uint32_t failure = 0;
    /// The boosts of the phrases that end here, also those that are suffixes.
    float complete = 0.0F;
    /// What the longest partial match has got in advance.
    float advance = 0.0F;
  };
  uint32_t child(uint32_t node, int32_t symbol) const;
  int32_t boundary_;
  std::vector<MatchNode> nodes_;
  float max_score_ = 0.0F;
};

}  // namespace arcgrad
