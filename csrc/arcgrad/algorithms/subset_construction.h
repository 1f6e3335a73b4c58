#pragma once

// The subset construction with weights, for determinize and disambiguate.

#include <functional>

#include "arcgrad/algorithms/label_codes.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad {

struct SubsetOptions {
  const char* op = "";
  Semiring semiring = Semiring::log;
  int64_t max_nodes = 0;
  /// Empty to determinize. To disambiguate: whether some string leads from both nodes to an end.
  std::function<bool(int32_t, int32_t)> have_common_future = nullptr;
  /// Returns a null graph instead of an error if the result has more than max_nodes.
  bool may_fail = false;
  /// Whether it is the graph of the user, whose nodes errors name; else epsilon arcs were removed.
  bool is_original = true;
};

/// Constructs subsets of a graph without epsilon arcs. The result has node weights if the graph
/// has, or if strings end with a weight.
Graph construct_subsets(const Graph& graph, const LabelCodes& codes, const SubsetOptions& options);

}  // namespace arcgrad
