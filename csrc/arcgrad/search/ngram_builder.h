#pragma once

// Building back-off models from lists of n-grams, and from ARPA files.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/search/ngram_model.h"

namespace arcgrad {

/// Names and the numbers they get, from 0 in the order in which they are added.
class NameTable {
 public:
  /// The number of a name, and whether it is new.
  std::pair<uint32_t, bool> add(std::string_view name);
  /// The number of a name, or UINT32_MAX.
  uint32_t find(std::string_view name) const;
  void reserve(size_t count);
  size_t size() const { return offsets_.size() - 1; }
  std::string_view name(size_t i) const {
    return {names_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
  }
  const std::vector<uint64_t>& offsets() const { return offsets_; }
  const Buffer<char>& bytes() const { return names_; }
  const std::vector<uint32_t>& cells() const { return cells_; }

 private:
  void grow(size_t num_cells);
  std::vector<uint64_t> offsets_{0};
  Buffer<char> names_;
  /// Number + 1 of the name in each cell of a hash table, or 0. A power of two.
  std::vector<uint32_t> cells_;
};

/// The n-grams of one order: `words` has `order` numbers for each.
struct NgramList {
  Buffer<uint32_t> words;
  Buffer<float> scores, back_offs;
  size_t size() const { return scores.size(); }
};

/// Builds a model from n-grams of order 1, 2, ... in any order. The 1-grams are the words 0, 1, ...
/// in their order. Prefixes of n-grams that the lists lack are added with the scores that back-off
/// gives them, so that no score changes.
std::shared_ptr<const NgramModel> build_ngram_model(const char* op, const NameTable& names,
                                                    std::vector<NgramList> lists);

}  // namespace arcgrad
