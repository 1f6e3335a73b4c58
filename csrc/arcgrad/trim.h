#pragma once

#include "arcgrad/topology.h"

namespace arcgrad {

/// What Topology::has_dead_ends() and Topology::trimmed() are.
bool find_dead_ends(const Topology& topology);
Trimmed trim(const Topology& topology);

}  // namespace arcgrad
