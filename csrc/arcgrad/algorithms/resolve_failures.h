#pragma once

// A graph with the language of one with failure and rest arcs, but without these arcs, so that the
// recursions of the trellis can match it with emissions.

#include <vector>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

struct ResolvedGraph {
  Graph graph;
  /// The arcs of the original whose weights each arc has.
  std::vector<ArcMap> maps = {};
  /// The nodes [inner_begin, inner_end) are between a node and the arcs that it backs off to.
  /// is_inner() tells whether an arc leads to one.
  int32_t inner_begin = 0, inner_end = 0;

  bool is_inner(int32_t arc) const {
    if (inner_begin == inner_end) return false;
    const int32_t to = graph.topology().dst()[static_cast<size_t>(arc)];
    return to >= inner_begin && to < inner_end;
  }
};

/// The graph with its failure and rest arcs on `side` replaced, recorded under the name of `op`, or
/// the graph itself if there are none. Rest arcs match the labels below `num_labels`.
ResolvedGraph resolve_failures(const char* op, const Graph& graph, Side side, int32_t num_labels);

/// The gradient of the original from that of the resolved graph.
Graph original_gradient(const char* op, const Graph& original, const ResolvedGraph& resolved,
                        const Graph& gradient);

}  // namespace arcgrad
