#include "arcgrad/runtime/thresholds.h"

#include <utility>

#include "arcgrad/runtime/error.h"

namespace arcgrad {

constinit Thresholds thresholds;

int64_t set_threshold(std::string_view name, int64_t value) {
  const std::pair<std::string_view, std::atomic<int64_t>&> all[] = {
      {"small_batch", thresholds.small_batch},
      {"streamed_gradient", thresholds.streamed_gradient},
      {"prefetched_arcs", thresholds.prefetched_arcs},
      {"near_nodes", thresholds.near_nodes},
      {"deferred_product", thresholds.deferred_product},
      {"full_percent", thresholds.full_percent},
  };
  for (const auto& [known, threshold] : all)
    if (known == name) return threshold.exchange(value);
  fail("set_threshold", "the name must be one of the thresholds, but it is '", name, "'");
}

}  // namespace arcgrad
