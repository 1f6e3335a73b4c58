#pragma once

// The list of kernels, from which planning, batches, `explain` and the tests choose. To add a
// kernel, write its files, declare its run function in kernel.h, add it to the enum of explain.h,
// and add one entry to the list in registry.cpp.

#include <memory>
#include <span>
#include <string>

#include "arcgrad/trellis/explain.h"
#include "arcgrad/trellis/kernels/kernel.h"

namespace arcgrad::trellis {

/// Examples of one graph that are scored in one call.
struct Workload {
  const TrellisGraph& graph;
  size_t num_examples;
  int32_t most_frames;
};

/// A kernel for products: what it can run, when it is chosen, and how it runs.
struct KernelEntry {
  Kernel kernel;
  const char* name;
  /// Whether it can run products of a graph without an epsilon cycle. (Graphs with one are always
  /// materialised.)
  bool (*can_run)(const TrellisGraph& graph);
  /// Whether to use it for work that it can run, if no earlier kernel of the list was chosen.
  bool (*is_chosen)(const Workload& work);
  /// Why, as `explain` shows it.
  std::string (*reason)(const Workload& work);
  /// The number of examples that run side by side, at most 64. It does not depend on the number of
  /// threads, because the order of sums over examples depends on it.
  size_t (*chunk_size)(size_t num_examples);
  /// Runs a chunk forward. Returns null for numbers that it cannot represent; then run_lanes() must
  /// run the chunk. Null pointer: products are materialised instead.
  std::unique_ptr<Run> (*run)(std::shared_ptr<const Factor> factor,
                              std::span<const Emissions> examples, const RunOptions& options);
  /// Whether the run of a chunk uses several threads, so that chunks run one after the other if
  /// there are few. Null pointer: it never does.
  bool (*divides_frames)(const TrellisGraph& graph, size_t num_examples) = nullptr;
  /// Computes the tables that all chunks of a factor use, before the chunks run in parallel. May be
  /// null.
  void (*prepare)(const Factor& factor, DType emissions) = nullptr;
};

/// The kernels for products in the order of choice.
std::span<const KernelEntry> kernel_list();
/// The entry of a kernel for products.
const KernelEntry& find_kernel(Kernel kernel);

/// Chooses the kernel; sets `reason` unless it is null. force_kernel() overrides the choice.
const KernelEntry& choose_kernel(const char* op, const Workload& work,
                                 std::string* reason = nullptr);

}  // namespace arcgrad::trellis
