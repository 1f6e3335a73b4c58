#pragma once

#include "arcgrad/autograd/tape.h"

namespace arcgrad {

/// A composition of topologies, and where the arcs of each input go.
struct Composed {
  Arrays arrays;
  ArcMap first, second;
};
Composed compose_topologies(const char* op, const Topology& first, const Topology& second);

/// compose(), recorded under the name of the op that asked for it.
Graph compose_as(const char* op, const Graph& first, const Graph& second);

}  // namespace arcgrad
