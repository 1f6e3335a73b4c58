#pragma once

// The nodes of a composition: pairs of nodes, numbered by a hash table.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <string_view>
#include <type_traits>
#include <vector>

#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

/// An array of plain values that grows by realloc, which remaps the pages of large arrays instead
/// of copying them.
template <class T>
class PodVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PodVector() = default;
  PodVector(const PodVector&) = delete;
  PodVector& operator=(const PodVector&) = delete;
  ~PodVector() { std::free(data_); }

  void push_back(T value) {
    if (size_ == capacity_) [[unlikely]]
      grow();
    data_[size_++] = value;
  }
  const T& operator[](int64_t i) const { return data_[i]; }
  int64_t size() const { return size_; }

 private:
  void grow() {
    const int64_t capacity = std::max<int64_t>(64, 2 * capacity_);
    const size_t bytes = static_cast<size_t>(capacity) * sizeof(T);
    if (bytes >= kLarge) require_memory(bytes / 2);  // what is added
    void* data = std::realloc(data_, bytes);
    if (!data) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  int64_t size_ = 0, capacity_ = 0;
};

/// A node of a composition: a node of each graph, and the state of the epsilon filter, which
/// forbids all but one of the orders in which two paths can take their epsilon arcs.
struct Pair {
  int32_t first, second;
  uint8_t filter = 0;
};

/// Numbers pairs in the order of their first lookup.
///
/// A hash table with linear probing, at most half full. A slot has a number and, in the bits above
/// it, a part of the hash: so other pairs are passed over without reading their keys, which are far
/// from each other. It becomes an array with one slot for every possible pair, which has no
/// collisions, as soon as that takes at most twice the memory.
class PairIds {
 public:
  /// A pair as a row (the first node and the state of the filter) and a column (the second node).
  using Key = uint64_t;

  PairIds(std::string_view op, int32_t num_first, int32_t num_second, uint64_t num_filters)
      : op_(op), num_first_(num_first), num_second_(num_second), num_filters_(num_filters) {
    resize(1024);
  }

  int32_t size() const { return static_cast<int32_t>(keys_.size()); }

  Key key(const Pair& pair) const {
    const uint64_t row = static_cast<uint64_t>(pair.first) + pair.filter * num_first_;
    return row << 32 | static_cast<uint32_t>(pair.second);
  }
  Pair pair(int32_t id) const {
    const Key key = keys_[id];
    uint64_t row = key >> 32;
    uint8_t filter = 0;
    for (; row >= num_first_; row -= num_first_) ++filter;
    return {static_cast<int32_t>(row), static_cast<int32_t>(key), filter};
  }

  void prefetch(Key key) const { __builtin_prefetch(&slots_[hash(key) >> shift_]); }

  /// The number of a pair, or -1.
  int32_t find(Key key) const {
    const uint32_t found = slots_[find_slot(key, hash(key))];
    return found == kFree ? -1 : static_cast<int32_t>(found & id_mask_);
  }
  /// The number of a pair, which is new if it was not there.
  int32_t operator[](Key key) {
    const uint64_t hash = this->hash(key);
    const size_t slot = find_slot(key, hash);
    if (slots_[slot] != kFree) return static_cast<int32_t>(slots_[slot] & id_mask_);
    const int32_t id = size();
    slots_[slot] = static_cast<uint32_t>(id) | tag(hash);
    keys_.push_back(key);
    if (keys_.size() > limit_) [[unlikely]]
      resize(2 * slots_.size());
    return id;
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;

  uint64_t hash(Key key) const {
    return ((key >> 32) * num_second_ + static_cast<uint32_t>(key)) * factor_;
  }
  /// The bits of the hash below those that choose the slot, where a slot has no number.
  uint32_t tag(uint64_t hash) const {
    return static_cast<uint32_t>(hash >> tag_shift_) & ~id_mask_;
  }
  size_t next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  /// The slot of a pair, or the free one where it belongs.
  size_t find_slot(Key key, uint64_t hash) const {
    size_t slot = hash >> shift_;
    if (is_direct_) return slot;
    const uint32_t wanted = tag(hash);
    for (; slots_[slot] != kFree; slot = next(slot))
      if ((slots_[slot] & ~id_mask_) == wanted && keys_[slots_[slot] & id_mask_] == key) break;
    return slot;
  }

  /// `num_slots` is a power of two.
  void resize(size_t num_slots) {
    require_size(op_, "nodes", keys_.size());
    const uint64_t num_keys = num_filters_ * num_first_ * num_second_;
    is_direct_ = num_keys <= 2 * num_slots;
    if (is_direct_) {
      num_slots = num_keys;
      factor_ = 1;
      shift_ = tag_shift_ = 0;
      id_mask_ = UINT32_MAX;
    } else {
      factor_ = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
      shift_ = 64 - std::countr_zero(num_slots);
      tag_shift_ = shift_ - 32;
      id_mask_ = static_cast<uint32_t>(num_slots / 2 - 1);
    }
    limit_ = std::min<int64_t>(static_cast<int64_t>(is_direct_ ? num_slots : num_slots / 2 - 1),
                               std::numeric_limits<int32_t>::max());
    slots_ = {};  // before the larger one is allocated
    slots_.assign(num_slots, kFree);
    InterruptPoll poll;
    constexpr int32_t kAhead = 16;
    for (int32_t id = 0; id < size(); ++id) {
      poll();
      if (id + kAhead < size()) prefetch(keys_[id + kAhead]);
      const uint64_t hash = this->hash(keys_[id]);
      size_t slot = hash >> shift_;
      while (slots_[slot] != kFree) slot = next(slot);
      slots_[slot] = static_cast<uint32_t>(id) | tag(hash);
    }
  }

  std::string_view op_;
  uint64_t num_first_, num_second_, num_filters_;
  PodVector<Key> keys_;
  Buffer<uint32_t> slots_;
  bool is_direct_ = false;
  uint64_t factor_ = 1;
  int shift_ = 0, tag_shift_ = 0;
  uint32_t id_mask_ = UINT32_MAX;  // the bits of a slot that are a number
  int64_t limit_ = 0;
};

}  // namespace arcgrad
