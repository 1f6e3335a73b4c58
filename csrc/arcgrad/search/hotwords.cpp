#include "arcgrad/search/hotwords.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arcgrad/runtime/error.h"

namespace arcgrad {

HotwordMatcher::HotwordMatcher(const Sequences& phrases, std::span<const float> boosts,
                               int32_t boundary)
    : boundary_(boundary) {
  constexpr const char* kOp = "hotwords";
  require(phrases.size() == boosts.size(), kOp, "there must be one boost for each phrase, but ",
          phrases.size(), " phrases have ", boosts.size(), " boosts");
  std::vector<uint32_t> order(phrases.size());
  std::iota(order.begin(), order.end(), 0U);
  for (const uint32_t i : order) {
    require(std::isfinite(boosts[i]), kOp, "boosts must be finite, but one is ", boosts[i]);
    require(std::ranges::any_of(phrases[i], [&](int32_t s) { return s != boundary; }), kOp,
            "phrases must have tokens, but phrase ", i, " has none");
  }
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return std::ranges::lexicographical_compare(phrases[a], phrases[b]);
  });
  // Breadth first, so that the children of a node are consecutive, and failures are known.
  struct PhraseRange {
    size_t begin, end, depth;
  };
  std::vector<PhraseRange> ranges{{0, order.size(), 0}};
  nodes_.push_back({});
  for (uint32_t n = 0; n < ranges.size(); ++n) {
    auto [at, end, depth] = ranges[n];
    for (; at < end && phrases[order[at]].size() == depth; ++at)
      nodes_[n].complete += boosts[order[at]];
    for (size_t i = at; i < end; ++i) {
      const auto phrase = phrases[order[i]];
      const auto counts = [&](int32_t symbol) { return symbol != boundary; };
      const auto whole = std::ranges::count_if(phrase, counts);
      const auto part = std::ranges::count_if(phrase.first(depth), counts);
      nodes_[n].advance = std::max(nodes_[n].advance, boosts[order[i]] * static_cast<float>(part) /
                                                          static_cast<float>(whole));
    }
    if (n > 0) {
      const MatchNode& failure = nodes_[nodes_[n].failure];
      nodes_[n].complete += failure.complete;
      nodes_[n].advance = std::max(nodes_[n].advance, failure.advance);
    }
    nodes_[n].first_child = static_cast<uint32_t>(nodes_.size());
    while (at < end) {
      const int32_t symbol = phrases[order[at]][depth];
      size_t next = at;
      while (next < end && phrases[order[next]][depth] == symbol) ++next;
      MatchNode node;
      node.symbol = symbol;
      if (n > 0) {
        uint32_t from = nodes_[n].failure, found = 0;
        while ((found = child(from, symbol)) == 0 && from != 0) from = nodes_[from].failure;
        node.failure = found;
      }
      nodes_.push_back(node);
      ranges.push_back({at, next, depth + 1});
      at = next;
    }
    nodes_[n].end_child = static_cast<uint32_t>(nodes_.size());
  }
  for (const MatchNode& node : nodes_)
    max_score_ = std::max(max_score_, node.complete + node.advance);
}

uint32_t HotwordMatcher::child(uint32_t node, int32_t symbol) const {
  const auto begin = nodes_.begin() + nodes_[node].first_child;
  const auto end = nodes_.begin() + nodes_[node].end_child;
  const auto found = std::lower_bound(begin, end, symbol,
                                      [](const MatchNode& n, int32_t s) { return n.symbol < s; });
  return found != end && found->symbol == symbol ? static_cast<uint32_t>(found - nodes_.begin())
                                                 : 0;
}

HotwordMatcher::Advance HotwordMatcher::next(uint32_t state, int32_t symbol) const {
  // Several boundaries are one.
  if (symbol == boundary_ && state != 0 && nodes_[state].symbol == boundary_) return {state, 0.0F};
  const float before = nodes_[state].advance;
  uint32_t found = 0;
  while ((found = child(state, symbol)) == 0 && state != 0) state = nodes_[state].failure;
  return {found, nodes_[found].complete + nodes_[found].advance - before};
}

}  // namespace arcgrad
