#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace arcgrad {

/// From this size on, memory is kept for the next buffer when it is freed: the page faults of fresh
/// memory take longer than the work of most ops, and malloc gives back what is free at the end of
/// its own.
inline constexpr size_t kLarge = size_t{32} << 10;

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

/// Nodes, arcs or labels.
using Column = Buffer<int32_t>;

/// An array of plain numbers for vector loops: it starts on a cache line, is not initialised, and
/// if it is large comes from memory that was used before, by whichever thread.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t size) : bytes_(static_cast<size_t>(size) * sizeof(T)) {
    if (bytes_ >= kLargeBlock) {
      data_ = static_cast<T*>(memory_ = allocate_large(bytes_));
      return;
    }
    // Asked for an aligned block, malloc would take a larger one and give back what is left over.
    memory_ = ::operator new(bytes_ + kCacheLine);
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    data_ = reinterpret_cast<T*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
  }
  AlignedBuffer(int64_t size, T value) : AlignedBuffer(size) {
    for (int64_t i = 0; i < size; ++i) data_[i] = value;
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(other.bytes_) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer() {
    if (memory_ && bytes_ < kLargeBlock)
      ::operator delete(memory_, bytes_ + kCacheLine);
    else if (memory_)
      free_large(memory_, bytes_);
  }

  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  static constexpr size_t kCacheLine = 64;
  /// Smaller ones come from malloc, which has memory for each thread: it is in that one's cache.
  static constexpr size_t kLargeBlock = size_t{256} << 10;
  T* data_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace arcgrad
