#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace arcgrad {

/// Sizes at which the code takes another path because it is faster there. Results do not depend on
/// them, so tests lower them to run every path on small inputs. Read each one once per call.
struct Thresholds {
  /// A batch of less work than this, in arcs, runs on the calling thread: waking others costs more.
  std::atomic<int64_t> small_batch{10'000};
  /// Gradients of a batch of emissions from this size on, in bytes, are written with streaming
  /// stores: smaller ones may still be in the cache when the network reads them.
  std::atomic<int64_t> streamed_gradient{int64_t{16} << 20};
  /// From this many arcs on, acyclic_forward prefetches its arrays.
  std::atomic<int64_t> prefetched_arcs{int64_t{1} << 17};
  /// Arcs that span more nodes than this are far: their other end is not in the cache.
  std::atomic<int64_t> near_nodes{int64_t{1} << 15};
};
extern Thresholds thresholds;

/// For tests: sets the threshold of that name and returns its old value.
int64_t set_threshold(std::string_view name, int64_t value);

}  // namespace arcgrad
