#pragma once

// Composition of the nodes, arcs and labels of two graphs, without weights.

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "arcgrad/autograd/arc_map.h"

namespace arcgrad {

/// The limit on the arcs that the search of a composition may reach.
class SearchLimit {
 public:
  /// The default of `max_arcs` is what half of the memory of the machine holds.
  SearchLimit(std::string_view op, const Topology& first, const Topology& second,
              std::optional<int64_t> max_arcs = std::nullopt);
  void check(int64_t num_nodes, int64_t num_arcs) const {
    if (std::max(num_nodes - 1, num_arcs) > max_arcs_) [[unlikely]]
      fail_size(num_nodes, num_arcs);
  }

 private:
  [[noreturn]] void fail_size(int64_t num_nodes, int64_t num_arcs) const;
  std::string_view op_;
  const Topology& first_;
  const Topology& second_;
  bool is_default_;
  int64_t max_arcs_;
};

/// A composition of topologies, and the maps from the arcs of each input. Of an input with failure
/// arcs, an arc of the composition has the weights of those that it backed off by, too: `failures`
/// has a map for each number of steps.
struct Composed {
  Arrays arrays;
  ArcMap first, second;
  std::vector<ArcMap> failures = {};
  Side failing = Side::output;  // the matched side of the graph that has them

  /// The inputs of the moves that compute the weights.
  std::vector<Moved> inputs(const Graph& graph1, const Graph& graph2) const;
};
/// The composition without the nodes that lie on no accepted path. Errors name `op`. Throws if the
/// search reaches more than `max_arcs` arcs, see SearchLimit.
Composed compose_topologies(const char* op, const Topology& first, const Topology& second,
                            std::optional<int64_t> max_arcs = std::nullopt);

}  // namespace arcgrad
