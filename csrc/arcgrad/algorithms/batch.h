#pragma once

// Ops on lists of graphs: element by element, in parallel.

#include <cstddef>
#include <string>
#include <vector>

#include "arcgrad/algorithms/product.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/thresholds.h"

namespace arcgrad {

/// The size of a batch of two lists; a list of one element is paired with every element of the
/// other.
inline size_t batch_size(const char* op, size_t first, size_t second) {
  require(first == second || first == 1 || second == 1, op,
          "lists must have the same length, or one element, but they have ", first, " and ",
          second);
  return first == 1 ? second : first;
}

/// An amount of work, in arcs, that always runs on the thread pool.
inline constexpr int64_t kMuchWork = int64_t{1} << 31;

/// Runs `element(i)` for each element of a batch: on the thread pool, or on the calling thread if
/// the total `work`, in arcs, is small. An error names the element.
template <class Element>
void for_batch(const char* op, size_t size, Element element, int64_t work = kMuchWork) {
  (work < thresholds.small_batch ? serial_for : parallel_for)(size, [&](size_t i) {
    try {
      poll_interrupt();
      element(i);
    } catch (...) {
      rethrow_for_element(op, i, size);
    }
  });
}

/// The same for an `element` that returns a graph; returns all of them.
template <class Element>
std::vector<Graph> map_batch(const char* op, size_t size, Element element,
                             int64_t work = kMuchWork) {
  std::vector<Graph> out(size, nullptr);
  for_batch(op, size, [&](size_t i) { out[i] = element(i); }, work);
  return out;
}

/// The work of an op on a graph, in arcs. It is high for a product, whose arcs must be built.
inline int64_t work_of(const Graph& graph) {
  return graph.product() ? kMuchWork : graph.num_arcs();
}

/// Applies an op of one graph to each graph of a list: `map("negate", negate, graphs)`.
template <class Op, class... Args>
std::vector<Graph> map(const char* name, Op op, const std::vector<Graph>& graphs,
                       const Args&... args) {
  int64_t work = 0;
  for (const Graph& graph : graphs) work += work_of(graph);
  return map_batch(name, graphs.size(), [&](size_t i) { return op(graphs[i], args...); }, work);
}

/// Applies an op of two graphs to two lists, of which one may have a single element.
template <class Op>
std::vector<Graph> map2(const char* name, Op op, const std::vector<Graph>& first,
                        const std::vector<Graph>& second) {
  const size_t size = batch_size(name, first.size(), second.size());
  int64_t work = 0;
  for (size_t i = 0; i < size; ++i) {
    const Graph &a = first[first.size() == 1 ? 0 : i], &b = second[second.size() == 1 ? 0 : i];
    work += is_deferrable(a, b) ? 1 : work_of(a) + work_of(b);
  }
  return map_batch(
      name, size,
      [&](size_t i) {
        return op(first[first.size() == 1 ? 0 : i], second[second.size() == 1 ? 0 : i]);
      },
      work);
}

}  // namespace arcgrad
