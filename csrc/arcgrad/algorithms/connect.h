#pragma once

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// A topology without what lies on no path from a start to an accept node.
struct Connected {
  /// Null if everything does.
  std::shared_ptr<const Topology> topology;
  /// The arcs that are left, ascending.
  Column arcs;
};

/// Whether a graph without cycles has nodes that lie on no path from a start to an accept node.
bool has_dead_ends(const Topology& topology);
const Connected& connected(const Topology& topology);

}  // namespace arcgrad
