#pragma once

// Arrays of plain numbers. Large ones take their memory from a free list, see free_list.cpp.

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace arcgrad {

/// Arrays of at least this many bytes use the free list. The page faults of fresh memory take
/// longer than the work of most ops, and malloc returns the free memory at the end of its heap to
/// the system.
inline constexpr size_t kLarge = size_t{32} << 10;

/// Returns at least `bytes` >= kLarge bytes, not zeroed. Throws if that exceeds the memory limit,
/// see memory_limit.h. Declared here, because the inline
/// functions below call it and public headers include only public headers.
void* allocate_large(size_t bytes);
/// Puts memory of allocate_large(bytes) into the free list, which keeps at most 512 MB.
void free_large(void* memory, size_t bytes) noexcept;
/// Throws if `bytes` more would exceed the memory limit, even with an empty free list. For large
/// arrays that do not come from here.
void require_memory(size_t bytes);

/// Takes large arrays from the free list, and leaves entries that are not given a value
/// uninitialized.
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
      ::operator delete(memory);
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

/// A vector for arrays that may be large. resize() leaves new numbers uninitialized.
template <class T>
using Buffer = std::vector<T, Allocator<T>>;

/// Nodes, arcs or labels.
using Column = Buffer<int32_t>;

/// An uninitialized array of plain numbers for vector loops, aligned to a cache line.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t size) : bytes_(static_cast<size_t>(size) * sizeof(T)) {
    if (bytes_ >= kFromFreeList) {
      data_ = static_cast<T*>(memory_ = allocate_large(bytes_));
      return;
    }
    // An aligned allocation would cost more: malloc takes a larger block and frees the remainder.
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
    if (memory_ && bytes_ < kFromFreeList)
      ::operator delete(memory_);
    else if (memory_)
      free_large(memory_, bytes_);
  }

  T* get() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  static constexpr size_t kCacheLine = 64;
  /// Smaller arrays come from malloc: it returns memory that this thread freed, which may still be
  /// in the cache of its processor.
  static constexpr size_t kFromFreeList = size_t{256} << 10;
  T* data_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace arcgrad
