// The free list of large arrays.
//
// The first write to each page of fresh memory is a page fault, which often takes longer than the
// op. So freed blocks are kept for later arrays: at most 64 blocks and 512 MB, and the oldest are
// returned to the system first. Sizes are rounded up, to a page or an eighth of a power of two, and
// a block is reused only for exactly its rounded size. Blocks of 2 MB and more consist of huge
// pages, and the system may reclaim them while they are in the list.
//
// Invariant: only take() and put() hold the spin lock, and no thread waits for it. If it is held,
// take() falls back to a fresh block and put() to free(). So a child that was forked while another
// thread held the lock still works, without the free list.
//
// Cost: a linear search of at most 64 entries.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/memory_limit.h"
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace arcgrad {
namespace {

/// Blocks of at least this size consist of huge pages.
constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallPage = size_t{4} << 10;
/// The largest total size of the list.
constexpr size_t kMaxKept = size_t{512} << 20;
constexpr size_t kMaxBlocks = 64;

/// Freed blocks, the oldest first.
class FreeList {
 public:
  /// A block of exactly this size, or null.
  void* take(size_t size) {
    if (in_use_.test_and_set(std::memory_order_acquire)) return nullptr;
    void* memory = nullptr;
    for (size_t i = count_; i-- > 0;)
      if (blocks_[i].size == size) {
        memory = remove(i);
        break;
      }
    in_use_.clear(std::memory_order_release);
    return memory;
  }

  void put(void* memory, size_t size) {
    if (size > kMaxKept) return std::free(memory);
#ifdef __linux__
    if (size >= kHuge) madvise(memory, size, MADV_FREE);
#endif
    if (in_use_.test_and_set(std::memory_order_acquire)) return std::free(memory);
    while (count_ == kMaxBlocks || total_ + size > kMaxKept) std::free(remove(0));
    blocks_[count_++] = {memory, size};
    total_ += size;
    in_use_.clear(std::memory_order_release);
  }

  void clear() {
    if (in_use_.test_and_set(std::memory_order_acquire)) return;
    while (count_ > 0) std::free(remove(count_ - 1));
    in_use_.clear(std::memory_order_release);
  }

 private:
  void* remove(size_t i) {
    void* memory = blocks_[i].memory;
    total_ -= blocks_[i].size;
    --count_;
    for (; i < count_; ++i) blocks_[i] = blocks_[i + 1];
    return memory;
  }

  struct FreeBlock {
    void* memory;
    size_t size;
  };
  std::atomic_flag in_use_;
  FreeBlock blocks_[kMaxBlocks];
  size_t count_ = 0, total_ = 0;
};

// Has no destructor, because static buffers may be freed after it at exit.
FreeList kept;

/// Rounds a size up, so that a block fits arrays of about its size.
size_t round_up(size_t bytes) {
  const size_t step = std::max(bytes < kHuge ? kSmallPage : kHugePage, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

void* allocate_large(size_t bytes) {
  const size_t size = round_up(bytes);
  if (void* memory = kept.take(size)) return memory;
  require_memory(size);
  void* memory = std::aligned_alloc(size < kHuge ? kSmallPage : kHugePage, size);
  if (!memory) fail_allocation(size);
#ifdef __linux__
  if (size >= kHuge) madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

void free_large(void* memory, size_t bytes) noexcept { kept.put(memory, round_up(bytes)); }

void require_memory(size_t bytes) {
  if (!exceeds_memory_limit(bytes)) [[likely]]
    return;
  kept.clear();
  if (exceeds_memory_limit(bytes)) fail_memory_limit(bytes);
}

}  // namespace arcgrad
