#pragma once

// Expected costs of paths, with first and second derivatives.

#include <memory>

#include "arcgrad/algorithms/log_partition.h"

namespace arcgrad {

/// The log partition of a graph on which an op needs a distribution. Throws if no path is accepted.
std::shared_ptr<const LogPartition> partition_of(const char* op, const Graph& graph);

/// Records the expected sum of `costs` along a path drawn from `graph`, two graphs of the same
/// structure; `partition` belongs to `graph`. Throws if a cost on an arc that is not impossible is
/// not finite.
Graph record_expectation(const char* op, const Graph& graph,
                         std::shared_ptr<const LogPartition> partition, const Graph& costs);

}  // namespace arcgrad
