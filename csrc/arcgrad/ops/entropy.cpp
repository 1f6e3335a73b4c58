#include "arcgrad/algorithms/expectation.h"
#include "arcgrad/autograd/elementwise.h"
#include "arcgrad/ops.h"

// The log probability of a path is its score minus the log partition Z, so the entropy is
// Z - E[score].

namespace arcgrad {

Graph entropy(const Graph& graph) {
  const auto partition = partition_of("entropy", graph);
  return record_sum("entropy", record_log_partition("entropy", graph, partition),
                    record_expectation("entropy", graph, partition, graph), -1.0);
}

}  // namespace arcgrad
