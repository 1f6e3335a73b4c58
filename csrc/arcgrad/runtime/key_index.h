#pragma once

// A hash table that numbers pointers.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace arcgrad {

/// Numbers distinct keys from 0 in the order in which they are added. A key is a pointer or an
/// array of pointers. Callers keep the data of the keys in vectors that these numbers index.
///
/// A few keys are searched one by one. More are in a table with open addressing and linear probing,
/// at most half full, so add() and find() take O(1) on average.
template <class Key>
class KeyIndex {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  size_t size() const { return keys_.size(); }
  /// Adds a key if it is new. Returns its number and whether it was new.
  std::pair<size_t, bool> add(const Key& key) {
    if (table_.empty() && keys_.size() < kFew) {
      const size_t found = scan(key);
      const bool is_new = found == keys_.size();
      if (is_new) keys_.push_back(key);
      return {found, is_new};
    }
    if (2 * keys_.size() >= table_.size()) grow();
    const size_t cell = find_cell(key);
    if (table_[cell] != 0) return {table_[cell] - 1, false};
    keys_.push_back(key);
    table_[cell] = static_cast<uint32_t>(keys_.size());
    return {keys_.size() - 1, true};
  }
  /// The number of a key, or kNone.
  size_t find(const Key& key) const {
    if (table_.empty()) {
      const size_t found = scan(key);
      return found == keys_.size() ? kNone : found;
    }
    const uint32_t entry = table_[find_cell(key)];
    return entry == 0 ? kNone : entry - 1;
  }
  bool contains(const Key& key) const { return find(key) != kNone; }
  void clear() {
    keys_.clear();
    table_.clear();
  }

 private:
  static uint64_t mix(const void* address) {
    return reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u;
  }
  template <size_t N>
  static uint64_t mix(const std::array<const void*, N>& addresses) {
    uint64_t out = 0;
    for (const void* address : addresses) out = std::rotl(out, 29) ^ mix(address);
    return out;
  }

  static constexpr size_t kFew = 8;

  /// The number of a key if there is no table, or size().
  size_t scan(const Key& key) const {
    return static_cast<size_t>(std::ranges::find(keys_, key) - keys_.begin());
  }
  /// The cell that holds a key, or the empty one where it belongs.
  size_t find_cell(const Key& key) const {
    // The products differ most in their upper half.
    size_t cell = (mix(key) >> 32) & (table_.size() - 1);
    while (table_[cell] != 0 && keys_[table_[cell] - 1] != key)
      cell = (cell + 1) & (table_.size() - 1);
    return cell;
  }
  void grow() {
    table_.assign(table_.empty() ? 4 * kFew : 2 * table_.size(), 0);
    for (size_t i = 0; i < keys_.size(); ++i)
      table_[find_cell(keys_[i])] = static_cast<uint32_t>(i + 1);
  }

  std::vector<Key> keys_;
  std::vector<uint32_t> table_;  // number + 1 of the key in each cell; 0 if the cell is empty
};

}  // namespace arcgrad
