#include "arcgrad/runtime/openmp.h"

#include <cstdlib>
#include <fstream>
#include <string>
#ifdef __linux__
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace arcgrad::openmp {

// The thread sanitizer does not see how a library that was not built with it waits.
#if defined(__linux__) && !defined(__SANITIZE_THREAD__)

namespace {

/// What code compiled for OpenMP calls; the libraries of GCC, LLVM and Intel all have it.
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
  // The kernel's flags of a process, the ninth number; the name before them may hold spaces.
  constexpr unsigned long kForkedWithoutExec = 0x40;
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  size_t at = line.rfind(')');
  for (int i = 0; i < 7 && at != std::string::npos; ++i) at = line.find(' ', at + 1);
  return at == std::string::npos || std::strtoul(&line[at], nullptr, 10) & kForkedWithoutExec;
}

/// False by the user's wish, and in a forked child: the threads of the parent are not there, but
/// the library would wait for them.
bool is_allowed = [] {
  const char* setting = std::getenv("ARCGRAD_OPENMP");
  pthread_atfork(nullptr, nullptr, [] { is_allowed = false; });
  return !(setting && std::string(setting) == "0") && !is_forked();
}();

/// Called by the main thread alone.
const Library* library() {
  static Library library;
  static bool is_found = false;
  // Another library may bring it at any time, so it is looked for until it is there.
  if (!is_found)
    is_found = find("GOMP_parallel", library.parallel) &&
               find("omp_get_max_threads", library.max_threads) &&
               find("omp_get_thread_num", library.thread) &&
               find("omp_get_num_threads", library.team_size);
  return is_found ? &library : nullptr;
}

}  // namespace

bool run(int num_threads, Body* body, void* data) {
  // OpenMP keeps threads for each thread that has a loop: only those of the main one are shared.
  static thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  if (!is_allowed || !is_main) return false;
  const Library* openmp = library();
  // Loops of different sizes would make it end threads and start them again.
  if (!openmp || openmp->max_threads() != num_threads) return false;
  struct LoopArguments {
    Body* body;
    void* data;
    const Library* openmp;
  } call{body, data, openmp};
  openmp->parallel(
      [](void* data) {
        const auto& [body, rest, openmp] = *static_cast<LoopArguments*>(data);
        body(rest, openmp->thread(), openmp->team_size());
      },
      &call, static_cast<unsigned>(num_threads), 0);
  return true;
}

#else

bool run(int, Body*, void*) { return false; }

#endif

}  // namespace arcgrad::openmp
