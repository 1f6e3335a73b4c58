#pragma once

// Plans how a list of products is scored: which examples share a graph, which kernel each group of
// them uses, and how many frames the forward pass keeps.

#include <memory>
#include <string>
#include <vector>

#include "arcgrad/algorithms/product.h"
#include "arcgrad/algorithms/resolve_failures.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/emissions.h"
#include "arcgrad/trellis/kernels/registry.h"

namespace arcgrad::trellis {

/// A list of graphs that are scored in one call, grouped by their graph factors.
///
/// A product has two factors, a graph and emissions. Two factors are the same if tape entry,
/// topology and weight buffer are equal; all products of one graph share its TrellisGraph, its
/// weights and its gradient. A group holds the examples of one graph that match the emissions on
/// one side. choose() picks the kernel of a group from the shape of the graph, the longest example
/// and the number of examples; the registry entry of the kernel says how many examples of the group
/// run together as a chunk. Neither depends on the number of threads, so results do not either.
/// Planning costs O(1) per example, plus building the TrellisGraph of each new graph, which its
/// topology caches.
struct Plan {
  struct Example {
    Graph product;            // null if the plan was made from factors
    size_t graph, emissions;  // indices of the factors in `graphs` and `emissions`
    Emissions view;
    size_t position;  // index in the list
  };
  struct Group {
    size_t graph;
    Side side;
    std::vector<size_t> examples;
  };

  /// Plans the products of a list; the other elements go to `linear` or `with_arcs`.
  Plan(const char* op, const std::vector<Graph>& list);
  /// Plans the products of acceptors with emissions, element by element, without building them. A
  /// single acceptor is paired with all emissions.
  Plan(const char* op, const std::vector<Graph>& acceptors, const std::vector<Graph>& emissions);

  /// The distinct factors. If any graph has failure or rest arcs, `graphs` are those of `resolved`,
  /// which is empty otherwise.
  std::vector<Graph> graphs, emissions;
  std::vector<ResolvedGraph> resolved;
  std::vector<Example> examples;
  std::vector<Group> groups;
  size_t list_size;
  /// Indices of the elements that are not products: dense linear graphs, and others.
  std::vector<size_t> linear, with_arcs;

  /// Rethrows the current exception, naming the element of the list that caused it.
  [[noreturn]] void rethrow(const char* op, size_t example) const;
  /// The same if one of several examples of a graph caused it: names the first example with an
  /// emission that is NaN or +inf.
  [[noreturn]] void rethrow(const char* op, const TrellisGraph& graph,
                            std::span<const size_t> together) const;
  /// The work of scoring the examples, in arcs as thresholds.small_batch counts it.
  int64_t work() const;
  /// The inputs of the tape entry of the scores: the products (optional), the graphs, the
  /// emissions.
  std::vector<Graph> tape_inputs() const;

  const std::shared_ptr<const TrellisGraph>& trellis_graph(const Group& group) const {
    return trellis::trellis_graph(graphs[group.graph].topology(), group.side);
  }
  /// Chooses the kernel of a group. Sets `reason`, unless it is null, to the text for `explain`.
  const KernelEntry& choose(const char* op, const Group& group,
                            std::string* reason = nullptr) const;

 private:
  void resolve_graphs(const char* op);
};

/// Calls `element(i)` in parallel for some indices i of a list. An error names the element.
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

/// The n of "keep every n-th frame for gradients", for `num_examples` examples of `num_frames`
/// frames of `frame_bytes` bytes. See set_history_limit().
int32_t history_stride(int64_t num_frames, int64_t frame_bytes, int64_t num_examples);

}  // namespace arcgrad::trellis
