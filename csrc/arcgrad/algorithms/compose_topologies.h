#pragma once

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// A composition of topologies, and where the arcs of each input go.
struct Composed {
  Arrays arrays;
  ArcMap first, second;
};
Composed compose_topologies(const char* op, const Topology& first, const Topology& second);

}  // namespace arcgrad
