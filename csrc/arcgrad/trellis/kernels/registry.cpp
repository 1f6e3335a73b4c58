// The list of kernels, and the rules by which they are chosen.

#include "arcgrad/trellis/kernels/registry.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "arcgrad/runtime/error.h"
#include "arcgrad/trellis/testing.h"

namespace arcgrad::trellis {
namespace {

std::atomic<const KernelEntry*> forced{nullptr};

bool always(const TrellisGraph&) { return true; }
bool always(const Workload&) { return true; }
size_t one_by_one(size_t) { return 1; }

// The product of an acyclic graph may have far fewer arcs than the trellis has cells (frame,
// state), because a path can be in few of the states after a given frame.

/// Building an arc of the product costs about as much as this many cells of the trellis.
constexpr double kCellsPerArc = 16.0;
constexpr int32_t kFewFrames = 32;

bool is_sparse_trellis(const Workload& work) {
  return work.graph.has_epsilon_cycle ||
         (work.most_frames > kFewFrames &&
          work.graph.occupancy(work.most_frames) * kCellsPerArc < 1.0);
}

std::string sparse_reason(const Workload& work) {
  if (work.graph.has_epsilon_cycle) return "epsilon arcs of the graph form a cycle";
  return text("the graph has no cycle, and only ", work.graph.occupancy(work.most_frames),
              " of the trellis can be reached");
}

bool is_dense(const TrellisGraph& graph) { return graph.is_dense; }

std::string dense_reason(const Workload& work) {
  const int32_t count = work.graph.num_emitting;
  return text("nearly all of ", count, " x ", count, " transitions exist");
}

/// At least two chunks, so that two threads have work, unless the matrix products get too small.
size_t dense_chunk(size_t num_examples) {
  constexpr size_t kFewRows = 4;
  return std::clamp((num_examples + 1) / 2, kFewRows, kDenseRows);
}

bool is_banded(const TrellisGraph& graph) { return !graph.offsets.empty(); }

/// `diagonal` vectorizes over states and `lanes` over examples.
bool has_states_to_vectorize(const Workload& work) {
  constexpr int32_t kFewStates = 8;
  return work.graph.num_emitting >= kFewStates || work.num_examples == 1;
}

std::string banded_reason(const Workload& work) {
  return text("banded graph: ", work.graph.num_emitting, " states, ", work.graph.offsets.size(),
              " diagonals");
}

bool has_many_examples(const Workload& work) { return work.num_examples > 1; }

std::string lanes_reason(const Workload& work) {
  return text(work.num_examples, " examples share the graph");
}

size_t lanes_chunk(size_t) { return kLanes; }

std::string csr_reason(const Workload&) {
  return "the graph is used by one example and has no special shape";
}

constexpr std::array kKernels{
    KernelEntry{Kernel::materialised, "materialised", always, is_sparse_trellis, sparse_reason,
                one_by_one, nullptr},
    KernelEntry{Kernel::dense, "dense", is_dense, always, dense_reason, dense_chunk, run_dense,
                divides_dense, prepare_dense},
    KernelEntry{Kernel::diagonal, "diagonal", is_banded, has_states_to_vectorize, banded_reason,
                one_by_one, run_diagonal},
    KernelEntry{Kernel::lanes, "lanes", always, has_many_examples, lanes_reason, lanes_chunk,
                run_lanes, divides_lanes},
    KernelEntry{Kernel::csr, "csr", always, always, csr_reason, one_by_one, run_csr, divides_lanes},
};

bool can_run(const KernelEntry& entry, const TrellisGraph& graph) {
  return graph.has_epsilon_cycle ? entry.run == nullptr : entry.can_run(graph);
}

}  // namespace

std::span<const KernelEntry> kernel_list() { return kKernels; }

const KernelEntry& find_kernel(Kernel kernel) {
  return *std::ranges::find(kKernels, kernel, &KernelEntry::kernel);
}

const char* name(Kernel kernel) {
  return kernel == Kernel::frames ? "frames" : find_kernel(kernel).name;
}

void force_kernel(const std::string& kernel_name) {
  const auto entry = std::ranges::find(kKernels, kernel_name, &KernelEntry::name);
  if (entry == kKernels.end() && !kernel_name.empty())
    fail("force_kernel", "there is no kernel '", kernel_name, "'");
  forced = kernel_name.empty() ? nullptr : entry;
}

const KernelEntry& choose_kernel(const char* op, const Workload& work, std::string* reason) {
  if (const KernelEntry* entry = forced) {
    require(can_run(*entry, work.graph), op, "the kernel '", entry->name,
            "' cannot run this product");
    if (reason) *reason = "it was forced";
    return *entry;
  }
  const auto& entry = *std::ranges::find_if(kKernels, [&](const KernelEntry& candidate) {
    return can_run(candidate, work.graph) && candidate.is_chosen(work);
  });
  if (reason) *reason = entry.reason(work);
  return entry;
}

}  // namespace arcgrad::trellis
