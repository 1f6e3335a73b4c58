#pragma once

// Which arcs of an input the arcs of a result came from.

#include "arcgrad/core/graph.h"

namespace arcgrad {

/// The sources of arc k of a result are `arcs` from offset[k] to offset[k + 1], ascending.
struct ArcSources {
  Column offset, arcs;
};

/// The arcs of `input` that the arcs of `result` came from, as the tape knows. Throws if `result`
/// was not recorded as a result of `input`, or was computed by an op whose outputs are no arcs of
/// its input.
ArcSources arc_sources(const Graph& result, const Graph& input);

}  // namespace arcgrad
