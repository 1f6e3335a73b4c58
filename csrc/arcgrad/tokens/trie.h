#pragma once

// A prefix tree over spellings; the basis of lexicon graphs and word piece decompositions.

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// A prefix tree (trie) of entries that are spelled by labels: word pieces by graphemes, or words
/// by tokens. Several entries may have the same spelling.
class Trie {
 public:
  /// Entry i has the non-empty spelling `spellings[i]` and the output label `labels[i]`.
  Trie(const std::vector<std::vector<int32_t>>& spellings, std::vector<int32_t> labels);

  int32_t num_entries() const { return static_cast<int32_t>(labels_.size()); }

  /// The transducer from concatenated spellings to output labels. Node 0 is start and accept node;
  /// the others are proper prefixes. Arc i completes entry i and emits its label; the arcs inside
  /// prefixes follow and emit epsilon.
  Graph graph(bool calc_grad = false, DType dtype = DType::float32) const;

  /// The acceptor of the output labels of all entry sequences that spell `sequence`. Its nodes are
  /// the positions where an entry may end; it is empty if there is no such sequence. Arcs are
  /// sorted by source, destination and label.
  Graph decompositions(std::span<const int32_t> sequence, bool calc_grad = false,
                       DType dtype = DType::float32) const;

 private:
  int32_t num_nodes() const { return static_cast<int32_t>(child_offset_.size()) - 1; }
  /// The child reached by `label`, or -1.
  int32_t child(int32_t node, int32_t label) const;

  std::vector<int32_t> labels_;
  /// Node 0 is the root. Node n has the children [child_offset_[n], child_offset_[n + 1]), sorted
  /// by label, and completes the entries [entry_offset_[n], entry_offset_[n + 1]), sorted by label.
  std::vector<int32_t> child_offset_, child_label_, child_node_;
  std::vector<int32_t> entry_offset_, entries_;
};

}  // namespace arcgrad
