#pragma once

// The gradient of a subset construction.

#include <cstdint>
#include <memory>

#include "arcgrad/autograd/rule.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad {

/// The paths that lead to the copies of nodes, and how the weights of the result are computed from
/// their scores: weight k is weight direct[k] of the graph plus score plus[k] minus score minus[k],
/// where -1 stands for no term.
struct SubsetForest {
  int32_t num_nodes = 0;
  Column src, dst, arcs;  // for each arc: copies, and the arc of the graph, or -1 for weight one
  Column sources, targets;
  Column direct, plus, minus;

  int32_t add_source() {
    sources.push_back(num_nodes);
    return num_nodes++;
  }
  void add_arc(int32_t from, int32_t to, int32_t arc) {
    src.push_back(from);
    dst.push_back(to);
    arcs.push_back(arc);
  }
  /// The index of a new output, the score of a copy.
  int32_t add_target(int32_t copy) {
    targets.push_back(copy);
    return static_cast<int32_t>(targets.size()) - 1;
  }
};

/// The rule of a subset construction. The scores of the forest are computed at the first
/// derivative.
std::unique_ptr<Rule> make_forest_rule(const char* op, const Graph& graph, SubsetForest forest,
                                       Semiring semiring);

}  // namespace arcgrad
