// Reads ARCGRAD_NUM_THREADS, OMP_NUM_THREADS, and the affinity mask and the quota of the process.

#include "arcgrad/runtime/thread_count.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#ifdef __linux__
#include <sched.h>
#endif

#include "arcgrad/runtime/cpu_quota.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

/// The value of a variable; empty if it is not set.
std::string_view read_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Parses a number of threads at the beginning of a text. Returns it, or 0 if there is none, and
/// where it ends.
std::pair<int, const char*> parse_num_threads(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return {error == std::errc() && number > 0 && number <= kMaxThreads ? number : 0, end};
}

/// ARCGRAD_NUM_THREADS; 0 if it is not set or not valid.
int own_num_threads() {
  const std::string_view value = read_environment("ARCGRAD_NUM_THREADS");
  const auto [number, end] = parse_num_threads(value);
  return end == value.data() + value.size() ? number : 0;
}

std::atomic<bool> is_forked{false};
std::atomic<bool (*)()> worker_check{nullptr};

[[maybe_unused]] const int has_handler = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });

}  // namespace

int usable_processors() {
  auto count = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  // Rounded down: with more threads the system would stop all of them for part of each period.
  count = static_cast<int>(std::min<double>(count, cpu_quota()));
#endif
  return std::max(1, count);
}

int default_num_threads() {
  if (const int own = own_num_threads()) return own;
  auto* const is_worker = worker_check.load();
  if (is_forked || (is_worker && is_worker())) return 1;
  const int processors = usable_processors();
  // The variable may be a list, one number per level of nesting; the first one counts.
  const int openmp = parse_num_threads(read_environment("OMP_NUM_THREADS")).first;
  return openmp ? std::min(openmp, processors) : processors;
}

void set_worker_check(bool (*check)()) { worker_check = check; }

void check_environment() {
  const std::string_view value = read_environment("ARCGRAD_NUM_THREADS");
  require(value.empty() || own_num_threads() > 0, "ARCGRAD_NUM_THREADS",
          "the number of threads must be a whole number between 1 and ", kMaxThreads,
          ", but it is '", value, "'");
}

}  // namespace arcgrad
