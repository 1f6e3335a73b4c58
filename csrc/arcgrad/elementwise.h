#pragma once

#include "arcgrad/tape.h"

namespace arcgrad {

/// Records first + factor * second, arc by arc, for graphs of the same structure.
Graph record_sum(const char* op, const Graph& first, const Graph& second, double factor);

}  // namespace arcgrad
