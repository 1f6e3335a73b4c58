#pragma once

// Transducers whose labels are moved along their paths: the labels that a path has read on one
// side and not yet written are part of the node.

#include "arcgrad/core/graph.h"

namespace arcgrad {

enum class DelayRule : uint8_t {
  /// Labels of both sides are written in pairs; the rest of the longer string comes last.
  pairs,
  /// A label is written with each label of one side; the rest of the other string comes last.
  with_input,
  with_output,
};

/// The graph with delayed labels, and epsilon arcs where nothing is written. Throws if the delay is
/// not bounded, naming a cycle, or if the result has more than `max_nodes`.
Graph delay_labels(const char* op, const Graph& graph, DelayRule rule, int64_t max_nodes);

}  // namespace arcgrad
