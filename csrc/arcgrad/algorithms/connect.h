#pragma once

#include "arcgrad/core/topology.h"

namespace arcgrad {

/// What Topology::has_dead_ends() and Topology::connected() are.
bool find_dead_ends(const Topology& topology);
Connected trim(const Topology& topology);

}  // namespace arcgrad
