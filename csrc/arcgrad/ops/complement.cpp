#include <algorithm>
#include <utility>

#include "arcgrad/algorithms/difference.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

// The difference between all strings of the labels, as one node with a loop per label, and the
// graph.
Graph complement(const Graph& graph, std::vector<int32_t> labels, std::optional<int64_t> max_arcs) {
  constexpr const char* kOp = "complement";
  require_acceptor(kOp, "the graph", graph);
  for (const int32_t label : labels)
    require(label >= 0, kOp, "the labels must be 0 or more, but one is ", label);
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  Arrays arrays;
  arrays.num_nodes = 1;
  arrays.start = arrays.accept = {0};
  arrays.src.assign(labels.size(), 0);
  arrays.dst.assign(labels.size(), 0);
  arrays.ilabel.assign(labels.begin(), labels.end());
  const auto count = static_cast<int64_t>(labels.size());
  const Graph all(std::make_shared<Topology>(std::move(arrays)),
                  Weights::zeros(count, graph.dtype()));
  return difference_as(kOp, all, graph, max_arcs);
}

}  // namespace arcgrad
