#pragma once

// Nodes on accepted paths: those that a start node reaches and that reach an accept node.

#include <cstdint>
#include <memory>
#include <span>

#include "arcgrad/core/topology.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

/// The part of a topology that lies on accepted paths.
struct Connected {
  /// Null if that is the whole topology.
  std::shared_ptr<const Topology> topology;
  /// The arcs that are kept, ascending, and then the node weights that are.
  Column arcs;
};

const Connected& connected(const Topology& topology);
/// Whether an acyclic topology has nodes that lie on no accepted path.
bool has_dead_ends(const Topology& topology);

/// Sets `bit` in the marks of all nodes that `sources` reach over slots with `follows(slot)`, by
/// depth-first search.
template <class Follows>
void mark_reachable(const Adjacency& along, std::span<const int32_t> sources,
                    const Follows& follows, uint8_t bit, Buffer<uint8_t>& marks) {
  Column stack(sources.begin(), sources.end());
  for (int32_t n : sources) marks[n] |= bit;
  InterruptPoll poll;
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    poll(1 + along.offset[n + 1] - along.offset[n]);
    for (int32_t k = along.offset[n]; k < along.offset[n + 1]; ++k)
      if (!(marks[along.node[k]] & bit) && follows(k)) {
        marks[along.node[k]] |= bit;
        stack.push_back(along.node[k]);
      }
  }
}

}  // namespace arcgrad
