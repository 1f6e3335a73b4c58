#pragma once

// Plans how a list of products is scored: groups by shared graph, kernels, chunks, kept frames.

#include <memory>
#include <string>
#include <vector>

#include "arcgrad/algorithms/product.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/emissions.h"
#include "arcgrad/trellis/kernels/registry.h"

namespace arcgrad::trellis {

/// A list of graphs that are scored in one call, grouped by what they share.
///
/// Factors are distinct if their tape entry, topology or weight buffer differs: all products of one
/// graph share its TrellisGraph, its weights and its gradient. A group holds the examples of one
/// graph that match the emissions on one side. choose() picks the kernel of a group from the shape
/// of the graph, the longest example and the number of examples; its entry in the registry tells
/// how many examples of the group run side by side as a chunk. Neither depends on the number of
/// threads, so results do not either. Planning costs O(1) per example, plus the arrangement of each
/// new graph, which its topology caches.
struct Plan {
  struct Example {
    Graph product;            // null if the factors were given
    size_t graph, emissions;  // numbers of the factors
    Emissions view;
    size_t position;  // in the list
  };
  struct Group {
    size_t graph;
    Side side;
    std::vector<size_t> examples;
  };

  /// Plans the products of a list, and sorts the positions of the other graphs.
  explicit Plan(const std::vector<Graph>& list);
  /// Plans the products of acceptors with emissions, element by element, without making them. A
  /// list of one acceptor applies to all emissions.
  Plan(const std::vector<Graph>& acceptors, const std::vector<Graph>& emissions);

  /// The distinct factors.
  std::vector<Graph> graphs, emissions;
  std::vector<Example> examples;
  std::vector<Group> groups;
  size_t list_size;
  /// Positions of the elements that are not products: dense linear graphs, and others.
  std::vector<size_t> linear, with_arcs;

  /// Rethrows the current exception with the position of the example that caused it.
  [[noreturn]] void rethrow(const char* op, size_t example) const;
  /// The same if one of several examples of a graph caused it: names the first with an emission
  /// that is NaN or +inf.
  [[noreturn]] void rethrow(const char* op, const TrellisGraph& graph,
                            std::span<const size_t> together) const;
  /// The inputs of the tape entry of the scores: the products (optional), the graphs, the
  /// emissions.
  std::vector<Graph> tape_inputs() const;

  const std::shared_ptr<const TrellisGraph>& form(const Group& group) const {
    return trellis_graph(graphs[group.graph].topology(), group.side);
  }
  /// Chooses the kernel of a group, and tells why if `reason` is not null.
  const KernelEntry& choose(const char* op, const Group& group,
                            std::string* reason = nullptr) const;
};

/// Runs `element(i)` in parallel for the given positions of a list. An error names the element.
template <class Element>
void for_positions(const char* op, size_t list_size, const std::vector<size_t>& positions,
                   Element element) {
  parallel_for(positions.size(), [&](size_t k) {
    try {
      element(positions[k]);
    } catch (...) {
      if (list_size == 1) throw;
      rethrow_for_element(op, positions[k], list_size);
    }
  });
}

/// True if `factor` is the graph of a product, false if it is the emissions. Raises for any other.
bool is_graph_factor(const char* op, const Graph& product, const Graph& factor);

/// The stride of the frames to keep for gradients, if `num_examples` examples of `num_frames`
/// frames of `frame_bytes` each run together. See set_history_limit().
int32_t history_stride(int64_t num_frames, int64_t frame_bytes, int64_t num_examples);

}  // namespace arcgrad::trellis
