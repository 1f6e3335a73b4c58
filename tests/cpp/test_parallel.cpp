// Parallel loops, their errors, their threads beside other programs, fork-safe initialization, and
// batches on several threads.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arcgrad/ops.h"
#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/contention.h"
#include "arcgrad/runtime/cpu_quota.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/fork_safe_once.h"
#include "arcgrad/runtime/parallel.h"
#include "check.h"

namespace {

void test_every_index_runs_once() {
  for (int num_threads : {1, 2, 5}) {
    arcgrad::set_num_threads(num_threads);
    CHECK(arcgrad::get_num_threads() == num_threads);
    for (size_t count : {0, 1, 7, 1000}) {
      std::vector<std::atomic<int>> seen(count);
      arcgrad::parallel_for(count, [&](size_t i) { ++seen[i]; });
      for (const auto& times : seen) CHECK(times == 1);
    }
  }
  CHECK_THROWS(std::invalid_argument, "set_num_threads: ", arcgrad::set_num_threads(0));
}

void test_the_first_exception_is_thrown() {
  arcgrad::set_num_threads(4);
  std::atomic<int> num_done = 0;
  const auto body = [&](size_t i) {
    if (i == 17 || i == 60) arcgrad::fail("body", "must not be ", i);
    ++num_done;
  };
  CHECK_THROWS(std::invalid_argument, "body: must not be 17", arcgrad::parallel_for(100, body));
  CHECK(num_done == 98);
}

void test_loops_nest() {
  std::atomic<int> num_done = 0;
  arcgrad::parallel_for(8, [&](size_t) { arcgrad::parallel_for(8, [&](size_t) { ++num_done; }); });
  CHECK(num_done == 64);
}

void test_rounds_follow_each_other() {
  std::vector<int> sums;
  std::atomic<int> sum = 0;
  arcgrad::parallel_rounds(
      20, 6, [&](size_t round, size_t part) { sum += static_cast<int>(round * part); },
      [&](size_t) { sums.push_back(sum.exchange(0)); });
  CHECK(sums.size() == 20);
  for (size_t round = 0; round < sums.size(); ++round)
    CHECK(sums[round] == static_cast<int>(15 * round));
}

/// The number of threads on which a loop makes its calls, which wait for each other if they can.
size_t num_threads_of(void (*loop)(size_t, const std::function<void(size_t)>&)) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  loop(8, [&](size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return seen.size();
}

void test_delayed_loops_stay_on_their_own_thread() {
  using std::chrono::milliseconds;
  arcgrad::set_num_threads(2);
  const auto pause = [&](size_t rounds) {
    for (size_t i = 0; i < rounds; ++i) arcgrad::report_loop(milliseconds(9), milliseconds(1));
  };
  const auto forget = [] { std::this_thread::sleep_for(milliseconds(1000)); };
  forget();  // other programs may have delayed the loops before
  // A loop that took less time than its threads together was not delayed.
  arcgrad::report_loop(milliseconds(9), milliseconds(17));
  CHECK(!arcgrad::is_contended());
  pause(1);
  CHECK(!arcgrad::is_contended());
  pause(5);
  CHECK(arcgrad::is_contended());
  CHECK(num_threads_of(arcgrad::parallel_for) == 1);
  CHECK(num_threads_of(arcgrad::parallel_for_blocking) == 2);
  std::atomic<int> num_parts = 0;
  arcgrad::parallel_rounds(3, 2, [&](size_t, size_t) { ++num_parts; }, [](size_t) {});
  CHECK(num_parts == 6);
  pause(1000);
  forget();
  CHECK(!arcgrad::is_contended());
}

void test_the_quota_of_control_groups_counts() {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / "arcgrad_cpu_quota";
  const auto quota = [&](const std::vector<std::pair<std::string, std::string>>& files) {
    fs::remove_all(root);
    for (const auto& [name, content] : files) {
      fs::create_directories((root / name).parent_path());
      std::ofstream(root / name) << content << "\n";
    }
    const double found = arcgrad::cpu_quota(root.string());
    fs::remove_all(root);
    return found;
  };
  const double none = std::numeric_limits<double>::infinity();
  const std::pair<std::string, std::string> v2{
      "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"};
  const std::pair<std::string, std::string> in_a_b{"proc/self/cgroup", "0::/a/b"};
  CHECK(quota({}) == none);
  CHECK(quota({v2, in_a_b}) == none);
  CHECK(quota({v2, in_a_b, {"sys/fs/cgroup/a/b/cpu.max", "max 100000"}}) == none);
  CHECK(quota({v2, in_a_b, {"sys/fs/cgroup/a/b/cpu.max", "250000 100000"}}) == 2.5);
  // The limit of a containing group counts, too.
  CHECK(quota({v2,
               in_a_b,
               {"sys/fs/cgroup/a/b/cpu.max", "250000 100000"},
               {"sys/fs/cgroup/a/cpu.max", "50000 100000"}}) == 0.5);
  // A container that sees its own group as the root.
  CHECK(quota({{"proc/self/mountinfo", "30 23 0:26 /a/b /sys/fs/cgroup rw - cgroup2 cgroup rw"},
               in_a_b,
               {"sys/fs/cgroup/cpu.max", "300000 100000"}}) == 3.0);
  const std::pair<std::string, std::string> v1{
      "proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"};
  const std::pair<std::string, std::string> in_c{"proc/self/cgroup",
                                                 "5:memory:/m\n3:cpu,cpuacct:/c"};
  CHECK(quota({v1,
               in_c,
               {"sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "150000"},
               {"sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "50000"}}) == 3.0);
  CHECK(quota({v1,
               in_c,
               {"sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1"},
               {"sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "50000"}}) == none);
}

void test_fork_safe_once() {
  for (int attempt = 0; attempt < 20; ++attempt) {
    arcgrad::ForkSafeOnce once;
    std::atomic<int> num_calls = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        once.call([&] {
          // Long enough for the other threads to arrive before the end.
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          ++num_calls;
        });
        if (!once.is_done() || num_calls != 1) num_calls += 100;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(num_calls == 1);
  }
  // After an exception the function runs again.
  arcgrad::ForkSafeOnce once;
  CHECK_THROWS(std::runtime_error, "not yet",
               once.call([] { throw std::runtime_error("not yet"); }));
  CHECK(!once.is_done());
  once.call([] {});
  CHECK(once.is_done());
}

void test_threads_share_a_graph() {
  // The first thread that needs a property of a topology computes it.
  for (int attempt = 0; attempt < 30; ++attempt) {
    arcgrad::Graph graph(true, arcgrad::DType::float64);
    for (int node = 0; node < 300; ++node) graph.add_node(node == 0, node == 299);
    for (int node = 298; node >= 0; --node) {
      graph.add_arc(node, node + 1, node % 5, node % 5, 0.01 * node);
      graph.add_arc(node, 299 - node % 7 % (299 - node), node % 3, node % 3, 0.5);
    }
    std::vector<double> found(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < found.size(); ++t)
      threads.emplace_back([&, t] {
        found[t] = arcgrad::forward_score(arcgrad::intersect(graph, graph)).item() +
                   arcgrad::viterbi_score(graph).item();
      });
    for (std::thread& thread : threads) thread.join();
    for (double score : found) CHECK(score == found[0]);
  }
}

void test_large_buffers_are_used_again() {
  for (size_t bytes : {arcgrad::kLarge, size_t{1} << 20}) {
    void* memory = arcgrad::allocate_large(bytes);
    static_cast<char*>(memory)[bytes - 1] = 1;
    arcgrad::free_large(memory, bytes);
    void* again = arcgrad::allocate_large(bytes);
    CHECK(again == memory);
    arcgrad::free_large(again, bytes);
  }
}

}  // namespace

int main() {
  test_every_index_runs_once();
  test_the_first_exception_is_thrown();
  test_loops_nest();
  test_rounds_follow_each_other();
  test_delayed_loops_stay_on_their_own_thread();
  test_the_quota_of_control_groups_counts();
  test_fork_safe_once();
  test_threads_share_a_graph();
  test_large_buffers_are_used_again();
  return failures();
}
