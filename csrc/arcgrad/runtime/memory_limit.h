#pragma once

// The soft limit on the memory of the process, and errors that say how much memory was missing.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace arcgrad {

/// There is no memory for an array, or not below the limit. Python sees a MemoryError.
class MemoryError : public std::bad_alloc {
 public:
  explicit MemoryError(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

/// The most bytes that the process may use, by what the system counts as its resident memory. Ops
/// check it before they allocate large arrays. Nothing: no limit.
void set_memory_limit(std::optional<int64_t> bytes);
std::optional<int64_t> get_memory_limit();

/// The memory of this machine, or of the control group of the process if that is less, in bytes.
int64_t machine_memory();
/// "1.5 GB".
std::string format_bytes(double bytes);

namespace memory {
inline constexpr int64_t kNoLimit = INT64_MAX;
extern std::atomic<int64_t> limit;
bool is_exceeded_by(size_t bytes);
}  // namespace memory

/// Whether `bytes` more would exceed the limit. Without a limit it costs one load.
inline bool exceeds_memory_limit(size_t bytes) {
  return memory::limit.load(std::memory_order_relaxed) != memory::kNoLimit &&
         memory::is_exceeded_by(bytes);
}
/// Throws MemoryError because `bytes` more would exceed the limit.
[[noreturn]] void fail_memory_limit(size_t bytes);
/// Throws MemoryError after an allocation of `bytes` failed.
[[noreturn]] void fail_allocation(size_t bytes);
/// Throws the current exception, a failed allocation, again with the prefix `op: `.
[[noreturn]] void rethrow_for_op(const std::string& op);

}  // namespace arcgrad
