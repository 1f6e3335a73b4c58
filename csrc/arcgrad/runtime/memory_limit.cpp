#include "arcgrad/runtime/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "arcgrad/runtime/error.h"
#ifdef __APPLE__
#include <mach/mach.h>
#endif

namespace arcgrad {
namespace {

/// What the process occupies in physical memory, in bytes; 0 if the system does not say.
int64_t resident_memory() {
#ifdef __APPLE__
  mach_task_basic_info info;
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const bool is_known = task_info(mach_task_self(), MACH_TASK_BASIC_INFO,
                                  reinterpret_cast<task_info_t>(&info), &count) == KERN_SUCCESS;
  return is_known ? static_cast<int64_t>(info.resident_size) : 0;
#else
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
#endif
}

/// A limit of the control group, or INT64_MAX.
int64_t read_limit(const char* file_name) {
  int64_t limit = 0;
  return std::ifstream(file_name) >> limit && limit > 0 ? limit : INT64_MAX;
}

}  // namespace

constinit std::atomic<int64_t> memory::limit{memory::kNoLimit};

void set_memory_limit(std::optional<int64_t> bytes) {
  require(!bytes || *bytes > 0, "set_memory_limit", "the limit must be 1 byte or more, but it is ",
          bytes.value_or(0));
  memory::limit = bytes.value_or(memory::kNoLimit);
}

std::optional<int64_t> get_memory_limit() {
  const int64_t limit = memory::limit;
  return limit == memory::kNoLimit ? std::nullopt : std::optional(limit);
}

int64_t machine_memory() {
  static const int64_t bytes =
      std::min({int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE),
                read_limit("/sys/fs/cgroup/memory.max"),
                read_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
  return bytes;
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000.0;
  char out[32];
  std::snprintf(out, sizeof(out), "%.3g %s", bytes, kUnits[unit]);
  return out;
}

bool memory::is_exceeded_by(size_t bytes) {
  return static_cast<double>(resident_memory()) + static_cast<double>(bytes) >
         static_cast<double>(limit.load());
}

void fail_memory_limit(size_t bytes) {
  throw MemoryError(text("the process may use at most ",
                         format_bytes(static_cast<double>(memory::limit.load())),
                         " of memory (set_memory_limit), but it uses ",
                         format_bytes(static_cast<double>(resident_memory())), " and ",
                         format_bytes(static_cast<double>(bytes)), " more are needed"));
}

void fail_allocation(size_t bytes) {
  throw MemoryError(text("there must be memory for the result, but the system has no ",
                         format_bytes(static_cast<double>(bytes)), " left"));
}

void rethrow_for_op(const std::string& op) {
  const std::string prefix = op + ": ";
  try {
    throw;
  } catch (const MemoryError& error) {
    const std::string what = error.what();
    // An op that is part of another one may have put its own name there.
    if (what.starts_with(op)) throw;
    throw MemoryError(prefix + what);
  } catch (const std::bad_alloc&) {
    throw MemoryError(prefix + "there must be memory for the result, but the system has none left");
  }
}

}  // namespace arcgrad
