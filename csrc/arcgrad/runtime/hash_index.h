#pragma once

// A hash table of numbers, whose keys the caller keeps.

#include <cstddef>
#include <cstdint>

#include "arcgrad/runtime/buffer.h"

namespace arcgrad {

/// Finds a number of 0 or more by the hash of its key. Open addressing with linear probing, at most
/// half full.
class HashIndex {
 public:
  /// The number with this hash for which `is_wanted(number)`, or -1.
  template <class IsWanted>
  int32_t find(uint32_t hash, const IsWanted& is_wanted) const {
    for (size_t at = home(hash); slots_[at].number >= 0; at = home(at + 1))
      if (slots_[at].hash == hash && is_wanted(slots_[at].number)) return slots_[at].number;
    return -1;
  }
  /// Adds a number that is not there.
  void add(uint32_t hash, int32_t number) {
    if (2 * ++size_ > slots_.size()) {
      Buffer<HashSlot> old(2 * slots_.size(), HashSlot{});
      old.swap(slots_);
      for (const HashSlot& slot : old)
        if (slot.number >= 0) insert(slot);
    }
    insert({hash, number});
  }

 private:
  struct HashSlot {
    uint32_t hash = 0;
    int32_t number = -1;
  };

  size_t home(size_t hash) const { return hash & (slots_.size() - 1); }
  void insert(const HashSlot& slot) {
    size_t at = home(slot.hash);
    while (slots_[at].number >= 0) at = home(at + 1);
    slots_[at] = slot;
  }

  size_t size_ = 0;
  Buffer<HashSlot> slots_ = Buffer<HashSlot>(64, HashSlot{});
};

/// Mixes the parts of a key. The upper half of the result is a hash.
inline uint64_t mix_hash(uint64_t hash, uint64_t part) {
  return ((hash << 29 | hash >> 35) ^ part) * 0x9e3779b97f4a7c15u;
}

}  // namespace arcgrad
