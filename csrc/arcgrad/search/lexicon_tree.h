#pragma once

// Words as a tree of the tokens that spell them: common prefixes share nodes.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "arcgrad/tokens/tokens.h"

namespace arcgrad {

/// A tree of spellings. Node 0 is the root. The children of a node have consecutive numbers in the
/// order of their tokens, so a node needs no list of them.
class LexiconTree {
 public:
  /// Spelling i belongs to the word `words[i]`. Several may be equal. Throws for an empty one.
  LexiconTree(const Sequences& spellings, std::span<const int32_t> words);

  uint32_t num_nodes() const { return static_cast<uint32_t>(nodes_.size() - 1); }
  int32_t num_words() const { return num_words_; }
  /// The children of a node are [first_child(node), first_child(node + 1)).
  uint32_t first_child(uint32_t node) const { return nodes_[node].first_child; }
  int32_t token(uint32_t node) const { return nodes_[node].token; }
  /// The child of a node that a token leads to, or 0.
  uint32_t child(uint32_t node, int32_t token) const;
  /// The words that end at a node, ascending.
  std::span<const int32_t> words(uint32_t node) const {
    return std::span(words_).subspan(nodes_[node].first_word,
                                     nodes_[node + 1].first_word - nodes_[node].first_word);
  }
  /// For each node the largest value of the words at it and below it, at least `least`.
  Buffer<float> largest_below(std::span<const float> values, float least) const;

 private:
  struct LexiconNode {
    uint32_t first_child;
    int32_t token;
    uint32_t first_word;
  };
  Buffer<LexiconNode> nodes_;  // one more than there are nodes
  Buffer<int32_t> words_;
  std::vector<uint32_t> root_child_;  // by token
  int32_t num_words_ = 0;
};

/// The spellings of words by labels with names, such as letters or word pieces.
class Speller {
 public:
  /// Labels with empty names spell nothing.
  explicit Speller(const std::vector<std::string>& labels);
  /// Adds the spellings of `prefix` + `word` with the owner `number`: all of them, but at most 32,
  /// those with long labels first. Returns false if there are none.
  bool spell(std::string_view prefix, std::string_view word, int32_t number, Sequences& spellings,
             std::vector<int32_t>& owners) const;

 private:
  struct Name {
    std::string_view text;
    int32_t label;
  };
  /// The label with a name, or -1.
  int32_t find(std::string_view part) const;
  bool spell_letters(std::string_view text, int32_t number, Sequences& spellings,
                     std::vector<int32_t>& owners) const;

  std::vector<std::string> names_;
  std::vector<Name> sorted_;
  int32_t by_byte_[256];
  bool are_letters_ = false;
  size_t longest_ = 0;
};

}  // namespace arcgrad
