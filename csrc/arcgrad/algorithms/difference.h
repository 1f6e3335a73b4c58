#pragma once

// The difference of acceptors.

#include <optional>

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// Throws if an arc of a graph has different labels, or is a failure or rest arc. `what` names the
/// graph.
void require_acceptor(const char* op, const char* what, const Graph& graph);

/// The paths of `first` whose strings `second` does not accept, recorded under the name of `op`.
/// `max_arcs` limits the search as in compose_topologies().
Graph difference_as(const char* op, const Graph& first, const Graph& second,
                    std::optional<int64_t> max_arcs);

}  // namespace arcgrad
