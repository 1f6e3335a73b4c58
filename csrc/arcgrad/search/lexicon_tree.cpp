#include "arcgrad/search/lexicon_tree.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

LexiconTree::LexiconTree(const Sequences& spellings, std::span<const int32_t> words) {
  constexpr const char* kOp = "lexicon";
  require(spellings.size() == words.size(), kOp, "there must be one word for each spelling, but ",
          spellings.size(), " spellings have ", words.size(), " words");
  require(spellings.labels.size() < size_t{1} << 31U, kOp,
          "spellings must have less than 2^31 labels in all, but they have ",
          spellings.labels.size());
  InterruptPoll poll;
  // The first labels of each spelling are packed into a key, which decides most comparisons.
  const int32_t largest = spellings.labels.empty() ? 0 : std::ranges::max(spellings.labels);
  const size_t bits = largest < 255 ? 8 : largest < 65535 ? 16 : 32;
  struct SpellingKey {
    uint64_t first;
    uint32_t index;
  };
  Buffer<SpellingKey> keys(words.size());
  for (uint32_t i = 0; i < words.size(); ++i) {
    const auto spelling = spellings[i];
    uint64_t first = 0;
    for (size_t k = 0; k < 64 / bits; ++k)
      first = first << bits |
              (k < spelling.size() ? static_cast<uint64_t>(uint32_t(spelling[k]) + 1U) : 0U);
    keys[i] = {first, i};
  }
  const auto is_before = [&](const SpellingKey& a, const SpellingKey& b) {
    poll();
    if (a.first != b.first) return a.first < b.first;
    const auto x = spellings[a.index], y = spellings[b.index];
    const auto [at, other] = std::ranges::mismatch(x, y);
    if (at != x.end() && other != y.end()) return *at < *other;
    if (at == x.end() && other == y.end()) return words[a.index] < words[b.index];
    return at == x.end();
  };
  if (!std::is_sorted(keys.begin(), keys.end(), is_before))
    std::sort(keys.begin(), keys.end(), is_before);
  std::vector<uint32_t> order(words.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = keys[i].index;
  for (const uint32_t i : order) {
    if (spellings[i].empty())
      fail(kOp, "spellings must not be empty, but word ", words[i], " has an empty one");
    if (std::ranges::min(spellings[i]) < 0 || words[i] < 0)
      fail(kOp, "labels and words must be 0 or more, but there is ",
           std::min(std::ranges::min(spellings[i]), words[i]));
    num_words_ = std::max(num_words_, words[i] + 1);
  }
  // Breadth first: node n has the spellings [range[n], range[n + 1]) of its level.
  struct SpellingRange {
    uint32_t begin, end;
  };
  std::vector<SpellingRange> level{{0, static_cast<uint32_t>(order.size())}}, next;
  nodes_.push_back({0, -1, 0});
  words_.reserve(words.size());
  uint32_t parent = 0;
  for (size_t depth = 0; !level.empty(); ++depth) {
    next.clear();
    for (SpellingRange range : level) {
      LexiconNode& node = nodes_[parent++];
      node.first_child = static_cast<uint32_t>(nodes_.size());
      node.first_word = static_cast<uint32_t>(words_.size());
      for (; range.begin < range.end && spellings[order[range.begin]].size() == depth;
           ++range.begin)
        // A word may have the same spelling twice.
        if (words_.size() == node.first_word || words_.back() != words[order[range.begin]])
          words_.push_back(words[order[range.begin]]);
      while (range.begin < range.end) {
        const int32_t token = spellings[order[range.begin]][depth];
        uint32_t end = range.begin;
        while (end < range.end && spellings[order[end]][depth] == token) ++end;
        nodes_.push_back({0, token, 0});
        next.push_back({range.begin, end});
        range.begin = end;
      }
      poll(16);
    }
    level.swap(next);
  }
  nodes_.push_back(
      {static_cast<uint32_t>(nodes_.size()), -1, static_cast<uint32_t>(words_.size())});
  for (uint32_t c = first_child(0); c < first_child(1); ++c) {
    const auto label = static_cast<size_t>(token(c));
    if (root_child_.size() <= label) root_child_.resize(label + 1, 0);
    root_child_[label] = c;
  }
}

uint32_t LexiconTree::child(uint32_t node, int32_t token) const {
  if (node == 0) return static_cast<size_t>(token) < root_child_.size() ? root_child_[token] : 0;
  uint32_t first = first_child(node), last = first_child(node + 1);
  while (first < last) {
    const uint32_t middle = (first + last) / 2;
    if (nodes_[middle].token < token)
      first = middle + 1;
    else
      last = middle;
  }
  return first < first_child(node + 1) && nodes_[first].token == token ? first : 0;
}

Buffer<float> LexiconTree::largest_below(std::span<const float> values, float least) const {
  Buffer<float> out(num_nodes(), least);
  for (uint32_t node = num_nodes(); node-- > 0;) {
    for (const int32_t word : words(node)) out[node] = std::max(out[node], values[word]);
    for (uint32_t c = first_child(node); c < first_child(node + 1); ++c)
      out[node] = std::max(out[node], out[c]);
  }
  return out;
}

namespace {

/// The number of bytes of a code point in UTF-8, by its first byte.
size_t letter_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

Speller::Speller(const std::vector<std::string>& labels) : names_(labels) {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].empty()) continue;
    sorted_.push_back({names_[i], static_cast<int32_t>(i)});
    longest_ = std::max(longest_, names_[i].size());
  }
  std::ranges::sort(sorted_, {}, &Name::text);
  // Single letters spell each word in one way.
  are_letters_ = std::ranges::all_of(
      sorted_, [](const Name& name) { return name.text.size() == letter_size(name.text[0]); });
  std::ranges::fill(by_byte_, -1);
  for (const Name& name : sorted_)
    if (name.text.size() == 1) by_byte_[static_cast<unsigned char>(name.text[0])] = name.label;
}

int32_t Speller::find(std::string_view part) const {
  if (part.size() == 1) return by_byte_[static_cast<unsigned char>(part[0])];
  const auto place = std::ranges::lower_bound(sorted_, part, {}, &Name::text);
  return place != sorted_.end() && place->text == part ? place->label : -1;
}

bool Speller::spell_letters(std::string_view text, int32_t number, Sequences& spellings,
                            std::vector<int32_t>& owners) const {
  const size_t before = spellings.labels.size();
  for (size_t at = 0; at < text.size();) {
    const std::string_view letter = text.substr(at, letter_size(text[at]));
    const int32_t label = find(letter);
    if (label < 0) {
      spellings.labels.resize(before);
      return false;
    }
    spellings.labels.push_back(label);
    at += letter.size();
  }
  spellings.end_sequence();
  owners.push_back(number);
  return true;
}

bool Speller::spell(std::string_view prefix, std::string_view word, int32_t number,
                    Sequences& spellings, std::vector<int32_t>& owners) const {
  constexpr size_t kMostSpellings = 32, kMostSteps = 4096;
  if (are_letters_ && prefix.empty()) return spell_letters(word, number, spellings, owners);
  const std::string text = std::string(prefix) + std::string(word);
  // Depth first, with long labels first. `ends` has the position after each label of the path.
  std::vector<int32_t> path;
  std::vector<size_t> ends{0}, lengths{longest_ + 1};
  size_t found = 0, steps = 0;
  while (!lengths.empty() && found < kMostSpellings && (found == 0 || steps < kMostSteps)) {
    const size_t at = ends.back();
    bool is_longer = false;
    // The steps without any spelling are bounded too, by the square of the length.
    if (++steps > kMostSteps + 64 * text.size() * longest_) break;
    for (size_t length = std::min(lengths.back() - 1, text.size() - at); length > 0; --length) {
      const std::string_view part = std::string_view(text).substr(at, length);
      const int32_t label = find(part);
      if (label < 0) continue;
      lengths.back() = length;
      path.push_back(label);
      ends.push_back(at + length);
      lengths.push_back(longest_ + 1);
      is_longer = true;
      break;
    }
    if (is_longer && ends.back() == text.size()) {
      ++found;
      spellings.labels.insert(spellings.labels.end(), path.begin(), path.end());
      spellings.end_sequence();
      owners.push_back(number);
      is_longer = false;
      ends.pop_back();
      lengths.pop_back();
      path.pop_back();
      continue;
    }
    if (is_longer) continue;
    ends.pop_back();
    lengths.pop_back();
    if (!path.empty()) path.pop_back();
  }
  return found > 0;
}

}  // namespace arcgrad
