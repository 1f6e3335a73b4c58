#pragma once

// Sizes at which another algorithm becomes faster. Tests can change them.

#include <atomic>
#include <cstdint>
#include <string_view>

namespace arcgrad {

/// Input sizes at which the code switches to another path because it is faster. Results do not
/// depend on them, so tests lower them to run every path on small inputs. Read each one once per
/// call.
struct Thresholds {
  /// A batch of less work than this, in arcs, runs on the calling thread: waking other threads
  /// would take longer.
  std::atomic<int64_t> small_batch{10'000};
  /// Gradients of emissions of at least this many bytes per batch are written with non-temporal
  /// stores. Smaller ones may still be in the cache when the network reads them.
  std::atomic<int64_t> streamed_gradient{int64_t{16} << 20};
  /// acyclic_forward prefetches its arrays if a graph has more arcs than this.
  std::atomic<int64_t> prefetched_arcs{int64_t{1} << 17};
  /// Arcs that span more nodes than this are far: their other end is unlikely to be in the cache.
  /// acyclic_forward prefetches the nodes of graphs with many far arcs.
  std::atomic<int64_t> near_nodes{int64_t{1} << 15};
  /// Programs for gtn: products with more arcs than this are deferred. Smaller ones are built,
  /// since they are scored as fast, and a built product keeps its gradient.
  std::atomic<int64_t> deferred_product{4096};
  /// Over emissions, a graph with failure arcs becomes one with an arc for each label of each node
  /// if that has at most this many percent of the arcs of the sparse form: it may fit a faster
  /// kernel.
  std::atomic<int64_t> full_percent{125};
};
extern Thresholds thresholds;

/// For tests: sets the threshold `name` and returns its old value.
int64_t set_threshold(std::string_view name, int64_t value);

}  // namespace arcgrad
