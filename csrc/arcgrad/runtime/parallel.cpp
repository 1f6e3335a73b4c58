// The thread pool.
//
// A call of parallel_for is a Job. Each thread, including the calling one, owns a range of
// consecutive indices, the same in every call with as many indices: what it computed for an example
// in the forward pass is then in its cache for the gradient. A thread takes indices from the front
// of its range, and when that is empty steals from the back of other ranges. The threads come from
// the OpenMP library of the program if it has one (openmp.h), else from one Pool.
//
// Invariants: every index is taken once, by a compare-and-swap on its range. Errors are stored per
// index, so which one is thrown does not depend on the threads. A nested loop runs on its own
// thread. A forked child forgets the pool of its parent and makes its own. While other programs
// keep the processors busy, loops run on their own thread (contention.h).
//
// Cost: one atomic operation per index, and one wake-up per thread unless it still spins.
// Reference: Blumofe and Leiserson, Scheduling multithreaded computations by work stealing, 1999.

#include "arcgrad/runtime/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "arcgrad/runtime/contention.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/grad_mode.h"
#include "arcgrad/runtime/memory_limit.h"
#include "arcgrad/runtime/openmp.h"
#include "arcgrad/runtime/thread_count.h"

namespace arcgrad {
namespace {

/// Yields the core briefly to its other hardware thread.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Whether this thread runs the body of a parallel_for.
thread_local bool is_inside = false;
/// When this thread last checked whether the user interrupted it.
thread_local std::chrono::steady_clock::time_point last_check{};
/// Set before poll_interrupt() throws, so that serial_for stops instead of running the other calls.
thread_local bool is_interrupted = false;

/// Thrown in the other threads of a job after an interruption.
class Interrupted : public std::exception {};
/// Carries an exception from rethrow_and_stop() to the loop that it ends.
struct Stop {
  std::exception_ptr cause;
};

std::atomic<void (*)()> interrupt_check{nullptr};
/// The check acquires the lock of the Python interpreter, so it is done rarely.
constexpr std::chrono::milliseconds kBetweenChecks{50};
/// How long a thread spins before it sleeps. Waking it takes longer than a small batch, and the
/// backward pass usually follows the forward pass at once.
constexpr std::chrono::microseconds kBeforeSleep{300};

/// Spins until a condition holds, at most for kBeforeSleep.
template <class Condition>
void spin_until(const Condition& holds) {
  const auto end = Clock::now() + kBeforeSleep;
  while (!holds()) {
    for (int i = 0; i < 32 && !holds(); ++i) relax();
    if (Clock::now() > end) return;
  }
}

/// The indices of one thread. It takes them from the front, and other threads steal from the back.
class alignas(64) IndexRange {
 public:
  void set(size_t begin, size_t end) { range_ = pack(begin, end); }
  /// Takes an index into `i`; false if none is left.
  bool take(bool is_own, size_t& i) {
    uint64_t range = range_.load(std::memory_order_relaxed);
    uint64_t rest;
    do {
      const size_t begin = range >> 32, end = range & UINT32_MAX;
      if (begin >= end) return false;
      i = is_own ? begin : end - 1;
      rest = is_own ? pack(begin + 1, end) : pack(begin, end - 1);
    } while (!range_.compare_exchange_weak(range, rest));
    return true;
  }

 private:
  static uint64_t pack(size_t begin, size_t end) { return uint64_t{begin} << 32 | end; }
  std::atomic<uint64_t> range_{0};
};

/// One call of parallel_for.
struct Job {
  Job(size_t count, int num_threads, const std::function<void(size_t)>& body)
      : body(body),
        errors(count),
        grad_enabled(is_grad_enabled()),
        ranges(static_cast<size_t>(num_threads)) {
    const size_t parts = ranges.size();
    for (size_t k = 0; k < parts; ++k) ranges[k].set(count * k / parts, count * (k + 1) / parts);
  }

  const std::function<void(size_t)>& body;
  std::vector<std::exception_ptr> errors;
  const bool grad_enabled;
  std::vector<IndexRange> ranges;
  std::atomic<bool> is_cancelled{false};
  std::atomic<int> working{0};   // threads of the pool in this job, changed under its mutex
  std::atomic<int> num_done{0};  // OpenMP threads that have finished
  std::exception_ptr interrupt;  // why the job was cancelled
  const Clock::time_point begin = Clock::now();
  Clock::duration own_time{};                 // in which the calling thread worked
  std::atomic<Clock::rep> time_of_others{0};  // the processor time of the other threads

  /// Called on any thread.
  void cancel(std::exception_ptr cause) {
    if (!is_cancelled.exchange(true)) interrupt = std::move(cause);
  }

  /// Cancels the job if the user has interrupted it. Called on the thread that started it.
  void check() {
    if (auto* check = interrupt_check.load(); check && !is_cancelled) {
      try {
        check();
      } catch (...) {
        cancel(std::current_exception());
      }
    }
  }

  /// Runs indices until none is left. Thread 0 is the one that started the job.
  void work(size_t thread) {
    const auto work_begin = Clock::now();
    const Clock::duration time_before = thread == 0 ? Clock::duration() : thread_time();
    const bool was_inside = std::exchange(is_inside, true);
    const bool was_enabled = set_grad_enabled(grad_enabled);
    Job* const outer = std::exchange(current_job, this);
    for (size_t k = 0; k < ranges.size(); ++k)
      for (size_t i; !is_cancelled && ranges[(thread + k) % ranges.size()].take(k == 0, i);) {
        try {
          body(i);
        } catch (const Stop& stop) {
          cancel(stop.cause);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    current_job = outer;
    set_grad_enabled(was_enabled);
    is_inside = was_inside;
    if (thread == 0)
      own_time = Clock::now() - work_begin;
    else
      time_of_others += (thread_time() - time_before).count();
  }

  /// Called after all threads have finished.
  void report() const {
    report_loop(Clock::now() - begin, own_time + Clock::duration(time_of_others));
  }

  const std::thread::id starter = std::this_thread::get_id();
  static thread_local Job* current_job;
};

thread_local Job* Job::current_job = nullptr;

/// Threads that wait for jobs.
class Pool {
 public:
  /// With `spins`, idle threads spin before they sleep. Pass false if there are more threads than
  /// processors, since spinning threads would then delay working ones.
  Pool(int num_workers, bool spins) : spins_(spins) {
    for (int i = 0; i < num_workers; ++i)
      threads_.emplace_back([this, i] { loop(static_cast<size_t>(i) + 1); });
  }
  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(Job& job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
      num_jobs_ = jobs_.size();
    }
    wake_.notify_all();
    job.work(0);
    std::unique_lock lock(mutex_);
    remove(job);
    if (spins_ && job.working > 0) {
      lock.unlock();
      spin_until([&] { return job.working == 0; });
      lock.lock();
    }
    while (!done_.wait_for(lock, kBetweenChecks, [&] { return job.working == 0; })) {
      lock.unlock();
      job.check();
      lock.lock();
    }
  }

 private:
  void loop(size_t thread) {
    std::unique_lock lock(mutex_);
    while (true) {
      if (spins_ && jobs_.empty() && !stop_) {
        lock.unlock();
        spin_until([&] { return num_jobs_ > 0; });
        lock.lock();
      }
      wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      Job& job = *jobs_.front();
      ++job.working;
      lock.unlock();
      job.work(thread);
      lock.lock();
      remove(job);
      if (--job.working == 0) done_.notify_all();
    }
  }

  void remove(Job& job) {
    std::erase(jobs_, &job);
    num_jobs_ = jobs_.size();
  }

  const bool spins_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<Job*> jobs_;
  std::atomic<size_t> num_jobs_{0};
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

/// Runs a job on OpenMP threads; false if that is not possible.
bool run_in_openmp(Job& job, int num_threads) {
  return openmp::run(
      num_threads,
      [](void* data, int thread, int num_threads) {
        Job& job = *static_cast<Job*>(data);
        job.work(static_cast<size_t>(thread));
        ++job.num_done;
        if (std::this_thread::get_id() != job.starter) return;
        // OpenMP would wait here too, but it would not check for Ctrl-C, and it would spin for
        // milliseconds on a processor that a thread of the job may need to wake up. This thread
        // polls instead of being notified: a notified thread would preempt the one that notifies
        // it.
        const auto all_are_done = [&] { return job.num_done == num_threads; };
        spin_until(all_are_done);
        while (!all_are_done()) {
          std::this_thread::sleep_for(kBeforeSleep);
          job.check();
        }
      },
      &job);
}

/// The pool and its size. Jobs hold a reference to the pool they run on, so that changing the
/// number of threads does not wait for them.
struct Threads {
  std::mutex mutex;
  int count = default_num_threads();
  std::shared_ptr<Pool> pool;
  int count_of_pool = 1;

  std::shared_ptr<Pool> get() {
    std::shared_ptr<Pool> old;  // ends without the lock
    std::lock_guard lock(mutex);
    if (count == 1) return nullptr;
    if (count != std::exchange(count_of_pool, count)) {
      old.swap(pool);
      pool = std::make_shared<Pool>(count - 1, count <= usable_processors());
    }
    return pool;
  }
};

std::atomic<Threads*> current{nullptr};

// A child has none of its parent's threads, and its copies of their locks may be held. Registered
// at load time, because the first use may be in the child.
[[maybe_unused]] const int has_handler = pthread_atfork(nullptr, nullptr, [] {
  is_inside = false;
  current = nullptr;
});

/// Made at the first use, so that a program can set environment variables before that. Never freed:
/// at exit, Python threads may still use it.
Threads& threads() {
  Threads* found = current;
  if (found) return *found;
  auto* fresh = new Threads;
  if (current.compare_exchange_strong(found, fresh)) return *fresh;
  delete fresh;
  return *found;
}

}  // namespace

void serial_for(size_t count, const std::function<void(size_t)>& body) {
  if (!is_inside) is_interrupted = false;
  std::exception_ptr first;
  for (size_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (const Stop& stop) {
      std::rethrow_exception(stop.cause);
    } catch (...) {
      if (is_interrupted) throw;
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

namespace {

void run_loop(size_t count, const std::function<void(size_t)>& body, bool may_block) {
  const int num_threads = count > 1 && !is_inside ? get_num_threads() : 1;
  if (num_threads == 1 || count > UINT32_MAX || (!may_block && is_contended()))
    return serial_for(count, body);
  Job job(count, num_threads, body);
  if (!run_in_openmp(job, num_threads)) {
    const std::shared_ptr<Pool> pool = threads().get();
    if (!pool) return serial_for(count, body);
    pool->run(job);
  }
  if (!may_block) job.report();
  if (job.interrupt) std::rethrow_exception(job.interrupt);
  for (const std::exception_ptr& error : job.errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

void parallel_for(size_t count, const std::function<void(size_t)>& body) {
  run_loop(count, body, false);
}

void parallel_for_blocking(size_t count, const std::function<void(size_t)>& body) {
  run_loop(count, body, true);
}

void parallel_rounds(size_t rounds, size_t parts, const std::function<void(size_t, size_t)>& part,
                     const std::function<void(size_t)>& close) {
  if (parts == 1 || is_inside || get_num_threads() == 1 || is_contended()) {
    for (size_t round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < parts; ++i) part(round, i);
      close(round);
    }
    return;
  }
  // A thread waits without a part, so the others wait only for a thread that the system stopped in
  // the middle of one. That thread then leaves, so that they wait for it only once.
  const size_t num_tickets = rounds * parts;
  std::atomic<size_t> next{0}, num_done{0}, open{0};
  std::atomic<bool> has_failed{false};
  std::atomic<int> num_threads{0};
  std::atomic<Clock::rep> work{0};
  const auto may_leave = [&] {
    int others = num_threads;
    while (others > 1)
      if (num_threads.compare_exchange_weak(others, others - 1)) return true;
    return false;
  };
  const auto run_parts = [&](size_t) {
    ++num_threads;
    const auto begin = Clock::now();
    const Clock::duration time_before = thread_time();
    Clock::duration own_work{}, stopped{};
    while (true) {
      size_t ticket = next;
      for (unsigned i = 1; ticket < num_tickets && ticket / parts > open && !has_failed; ++i) {
        i % 1024 ? relax() : std::this_thread::yield();
        ticket = next;
      }
      if (ticket >= num_tickets || has_failed) break;
      if (!next.compare_exchange_weak(ticket, ticket + 1)) continue;
      const size_t round = ticket / parts;
      const auto part_begin = Clock::now();
      part(round, ticket % parts);
      if (num_done.fetch_add(1) + 1 == (round + 1) * parts) {
        close(round);
        open = round + 1;
      }
      const auto now = Clock::now();
      own_work += now - part_begin;
      if (now - part_begin < kDelay) continue;
      const Clock::duration stopped_now = now - begin - (thread_time() - time_before);
      const Clock::duration delay = stopped_now - std::exchange(stopped, stopped_now);
      if (delay < kDelay) continue;
      own_work -= delay;
      if (may_leave()) break;
    }
    work += own_work.count();
  };
  const auto begin = Clock::now();
  parallel_for(parts, [&](size_t i) {
    try {
      run_parts(i);
    } catch (...) {
      has_failed = true;
      throw;
    }
  });
  report_loop(Clock::now() - begin, Clock::duration(work));
}

void set_interrupt_check(void (*check)()) { interrupt_check = check; }

void poll_interrupt() {
  if (DeferredInterrupts::is_active()) return;
  Job* const job = Job::current_job;
  const auto stop_if_cancelled = [&] {
    if (!job || !job->is_cancelled) return;
    is_interrupted = true;
    throw Interrupted();
  };
  stop_if_cancelled();
  if (job && job->starter != std::this_thread::get_id()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_check < kBetweenChecks) return;
  last_check = now;
  if (job) {
    job->check();
    stop_if_cancelled();
  } else if (auto* check = interrupt_check.load()) {
    is_interrupted = true;
    check();
    is_interrupted = false;
  }
}

void poll_interrupt_now() {
  last_check = {};
  poll_interrupt();
}

void rethrow_and_stop() { throw Stop{std::current_exception()}; }

int get_num_threads() {
  Threads& t = threads();
  std::lock_guard lock(t.mutex);
  return t.count;
}

void set_num_threads(int num_threads) {
  require(num_threads >= 1 && num_threads <= kMaxThreads, "set_num_threads",
          "the number of threads must be between 1 and ", kMaxThreads, ", but it is ", num_threads);
  Threads& t = threads();
  std::lock_guard lock(t.mutex);
  t.count = num_threads;
}

void rethrow_for_element(const std::string& op, size_t index, size_t count) {
  const std::string where = text(op, " (element ", index, " of ", count, "): ");
  auto located = [&](std::string what) {
    const std::string plain = op + ": ";
    return where + (what.starts_with(plain) ? what.substr(plain.size()) : what);
  };
  try {
    throw;
  } catch (const TapeError& error) {
    throw TapeError(located(error.what()));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(located(error.what()));
  } catch (const MemoryError& error) {
    throw MemoryError(located(error.what()));
  }
}

}  // namespace arcgrad
