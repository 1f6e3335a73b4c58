#pragma once

// Composition of the nodes, arcs and labels of two graphs, without weights.

#include <optional>
#include <vector>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// A composition of topologies, and the maps from the arcs of each input. Of an input with failure
/// arcs, an arc of the composition has the weights of those that it backed off by, too: `failures`
/// has a map for each number of steps.
struct Composed {
  Arrays arrays;
  ArcMap first, second;
  std::vector<ArcMap> failures = {};
  Side failing = Side::output;  // the matched side of the graph that has them

  /// The inputs of the moves that compute the weights.
  std::vector<Moved> inputs(const Graph& graph1, const Graph& graph2) const;
};
/// The composition without the nodes that lie on no accepted path. Errors name `op`. Throws if the
/// search reaches more than `max_arcs` arcs, see SearchLimit.
Composed compose_topologies(const char* op, const Topology& first, const Topology& second,
                            std::optional<int64_t> max_arcs = std::nullopt);

}  // namespace arcgrad
