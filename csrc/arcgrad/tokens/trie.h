#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// Entries that are spelled by labels, such as pieces by graphemes or words by tokens, arranged so
/// that spellings share their beginnings. Several entries may have the same spelling.
class Trie {
 public:
  /// Entry i is spelled by `spellings[i]`, which is not empty, and is written as `labels[i]`.
  Trie(const std::vector<std::vector<int32_t>>& spellings, std::vector<int32_t> labels);

  int32_t num_entries() const { return static_cast<int32_t>(labels_.size()); }

  /// A transducer from spellings of any number of entries to their labels. Node 0 starts and
  /// accepts, and the others are beginnings of spellings. Arc i is the last one of entry i, which
  /// writes its label; the arcs of the beginnings, which write nothing, come after them.
  Graph graph(bool calc_grad = false, DType dtype = DType::float32) const;

  /// The sequences of entries that spell `sequence`, as an acceptor of their labels. Its nodes are
  /// the places in the sequence where an entry may end; it has none if nothing spells it. Arcs are
  /// sorted by source, destination and label.
  Graph decompositions(std::span<const int32_t> sequence, bool calc_grad = false,
                       DType dtype = DType::float32) const;

 private:
  int32_t num_nodes() const { return static_cast<int32_t>(child_offset_.size()) - 1; }
  /// The node that `label` leads to, or -1.
  int32_t child(int32_t node, int32_t label) const;

  std::vector<int32_t> labels_;
  /// Node 0 is the root. Node n has the children [child_offset_[n], child_offset_[n + 1]), which
  /// are sorted by label, and is the end of the entries [entry_offset_[n], entry_offset_[n + 1]),
  /// which are sorted by their labels.
  std::vector<int32_t> child_offset_, child_label_, child_node_;
  std::vector<int32_t> entry_offset_, entries_;
};

}  // namespace arcgrad
