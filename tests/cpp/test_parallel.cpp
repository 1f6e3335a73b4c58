// Parallel loops, their errors, fork-safe initialization, and batches on several threads.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "arcgrad/ops.h"
#include "arcgrad/runtime/buffer.h"
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
  test_fork_safe_once();
  test_threads_share_a_graph();
  test_large_buffers_are_used_again();
  return failures();
}
