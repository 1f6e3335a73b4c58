#pragma once

// The removal of arcs as gtn does it.

#include "arcgrad/core/graph.h"
#include "arcgrad/gtn/arc_order.h"

namespace arcgrad::gtn {

/// The graph that accepts the same strings without the arcs labelled `ilabel`:`olabel`, with all
/// weights 0. A node stays if it starts or another arc enters it. It takes over the other arcs, and
/// the acceptance, of all nodes that removed arcs lead to. The result has no gradient:
/// backward() through it throws.
Graph remove(const Graph& graph, int32_t ilabel, int32_t olabel, const ArcOrder& order);

}  // namespace arcgrad::gtn
