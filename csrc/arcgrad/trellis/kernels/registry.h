#pragma once

// The list of kernels: everything outside this folder that depends on which kernels exist reads it.
// To add a kernel, write its files, declare its run function in kernel.h, give it a name in the
// enum of explain.h, and add one entry to the list in registry.cpp.

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

struct KernelEntry {
  Kernel kernel;
  const char* name;
  /// Whether it can run products of the graph, which has no epsilon cycle.
  bool (*can_run)(const TrellisGraph& graph);
  /// Whether to use it for work that it can run, if no kernel before it in the list was used.
  bool (*is_chosen)(const Workload& work);
  /// Why, as `explain` shows it.
  std::string (*reason)(const Workload& work);
  /// The number of examples that run side by side. It does not depend on the number of threads,
  /// because the order of sums over examples depends on it.
  size_t (*chunk_size)(size_t num_examples);
  /// Runs a chunk forward. May return null for numbers that it cannot represent; then run_lanes()
  /// must be used. A null pointer: products are not run but materialised.
  std::unique_ptr<Run> (*run)(std::shared_ptr<const Factor> factor,
                              std::span<const Emissions> examples, const RunOptions& options);
  /// Computes in advance what the chunks of a factor share, so that threads need not wait for the
  /// first of them. May be null.
  void (*prepare)(const Factor& factor, DType emissions) = nullptr;
};

/// The kernels for products in the order of choice.
std::span<const KernelEntry> kernel_list();
/// The entry of a kernel for products.
const KernelEntry& find_kernel(Kernel kernel);

/// Chooses the kernel, and tells why if `reason` is not null. force_kernel() overrides the choice.
const KernelEntry& choose_kernel(const char* op, const Workload& work,
                                 std::string* reason = nullptr);

}  // namespace arcgrad::trellis
