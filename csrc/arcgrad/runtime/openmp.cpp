// Finds the OpenMP library of the program with dlsym, without linking to one.

#include "arcgrad/runtime/openmp.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#ifdef __linux__
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace arcgrad::openmp {
namespace {

std::atomic<int64_t> count_of_loops{0};

}  // namespace

int64_t num_loops() { return count_of_loops; }

// The thread sanitizer reports false races, because OpenMP libraries are built without it.
#if defined(__linux__) && !defined(__SANITIZE_THREAD__)

namespace {

/// The functions that code compiled with OpenMP calls. The libraries of GCC, LLVM and Intel all
/// have them.
struct Library {
  void (*parallel)(void (*body)(void*), void* data, unsigned num_threads, unsigned flags);
  int (*max_threads)();
  int (*thread)();
  int (*team_size)();
};

template <class F>
bool find(const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
  return function;
}

bool is_forked() {
  // The ninth field holds the kernel's flags of the process; the second, its name in parentheses,
  // may contain spaces.
  constexpr unsigned long kForkedWithoutExec = 0x40;
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  size_t at = line.rfind(')');
  for (int i = 0; i < 7 && at != std::string::npos; ++i) at = line.find(' ', at + 1);
  return at == std::string::npos || std::strtoul(&line[at], nullptr, 10) & kForkedWithoutExec;
}

/// False if ARCGRAD_OPENMP=0, and in a forked child, where OpenMP would wait for threads that only
/// the parent has.
bool is_allowed = [] {
  const char* setting = std::getenv("ARCGRAD_OPENMP");
  pthread_atfork(nullptr, nullptr, [] { is_allowed = false; });
  return !(setting && std::string(setting) == "0") && !is_forked();
}();

/// The OpenMP library, or null. Called by the main thread only.
const Library* library() {
  static Library library;
  static bool is_found = false;
  // The program may load it at any time, so every call searches again until it is found.
  if (!is_found)
    is_found = find("GOMP_parallel", library.parallel) &&
               find("omp_get_max_threads", library.max_threads) &&
               find("omp_get_thread_num", library.thread) &&
               find("omp_get_num_threads", library.team_size);
  return is_found ? &library : nullptr;
}

/// The clock of the processor time of an OpenMP thread; 0 until one is known. The clock of a thread
/// that has ended cannot be read.
std::atomic<clockid_t> worker_clock{0};

/// Whether an OpenMP thread uses a processor now, so that it will start at once; true if unknown.
/// OpenMP makes its caller wait for all of its threads. To wake up one that sleeps can take 16 ms.
bool is_spinning() {
  const clockid_t clock = worker_clock;
  timespec before, after;
  if (clock == 0 || clock_gettime(clock, &before) != 0 || clock_gettime(clock, &after) != 0)
    return true;
  return before.tv_nsec != after.tv_nsec;
}

}  // namespace

bool run(int num_threads, Body* body, void* data) {
  // OpenMP keeps a team of threads for each thread that starts loops. Other libraries use the team
  // of the main thread.
  static thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  if (!is_allowed || !is_main) return false;
  const Library* openmp = library();
  // A team of another size would make OpenMP end threads and start new ones.
  if (!openmp || openmp->max_threads() != num_threads || !is_spinning()) return false;
  struct LoopArguments {
    Body* body;
    void* data;
    const Library* openmp;
  } call{body, data, openmp};
  ++count_of_loops;
  openmp->parallel(
      [](void* data) {
        const auto& [body, rest, openmp] = *static_cast<LoopArguments*>(data);
        const int thread = openmp->thread();
        clockid_t clock;
        if (thread == 1 && pthread_getcpuclockid(pthread_self(), &clock) == 0) worker_clock = clock;
        body(rest, thread, openmp->team_size());
      },
      &call, static_cast<unsigned>(num_threads), 0);
  return true;
}

#else

bool run(int, Body*, void*) { return false; }

#endif

}  // namespace arcgrad::openmp
