#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace arcgrad {

/// From this size on, memory is kept for the next buffer when it is freed: the page faults of fresh
/// memory take longer than the work of most ops.
inline constexpr size_t kLarge = size_t{256} << 10;

/// Memory of at least `bytes` >= kLarge, not zeroed.
void* allocate_large(size_t bytes);
/// Takes it back. Up to 512 MB stay with the process; the system may reclaim all but small blocks.
void free_large(void* memory, size_t bytes) noexcept;

/// Allocates large arrays as above, and leaves new entries without a value uninitialised.
template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) {}

  T* allocate(size_t count) {
    if (count > PTRDIFF_MAX / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < kLarge ? ::operator new(bytes) : allocate_large(bytes));
  }
  void deallocate(T* memory, size_t count) noexcept {
    const size_t bytes = count * sizeof(T);
    if (bytes < kLarge)
      ::operator delete(memory, bytes);
    else
      free_large(memory, bytes);
  }

  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }

  bool operator==(const Allocator&) const { return true; }
};

/// A vector for arrays that may be large. resize() does not set numbers to zero.
template <class T>
using Buffer = std::vector<T, Allocator<T>>;

}  // namespace arcgrad
