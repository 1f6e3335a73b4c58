#pragma once

// The best path of a product in terms of its factors, and how ties between paths are broken.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "arcgrad/core/semiring.h"
#include "arcgrad/trellis/trellis_graph.h"

namespace arcgrad::trellis {

/// One arc of a best path through the product of a graph with emissions. With node weights, the
/// first and the last step are those of a start and an accept weight.
struct BestStep {
  int32_t arc;    // of the graph, or the index of a node weight
  int32_t frame;  // the frame it consumes; -1 for an epsilon arc or a node weight
  int32_t label;  // on the side of the emissions
};

struct BestAlignment {
  double score = kNegInf;  // -inf if there is no path
  int32_t start = -1;      // the first node of the path, in the graph
  std::vector<BestStep> steps;
};

/// The score of ending a path in each state, from the weights of the graph; -inf if none may end
/// there.
template <class T>
std::vector<double> end_scores(const TrellisGraph& graph, std::span<const T> weights) {
  std::vector<double> end(static_cast<size_t>(graph.num_values), kNegInf);
  for (size_t k = 0; k < graph.accept.size(); ++k) {
    const int32_t index = graph.accept_weight(k);
    end[graph.accept[k]] = index < 0 ? 0.0 : weights[static_cast<size_t>(index)];
  }
  return end;
}

/// Whether the trace of a best path, at a state from which no frame is left and with this score,
/// ends before it looks for an arc. Without node weights the end precedes any arc; an accept weight
/// comes after all arcs.
inline bool ends_first(const TrellisGraph& graph, double end, double score) {
  return !graph.has_node_weights && end == 0.0 && score == 0.0;
}

/// Adds the step of an accept weight to a path that ends in a state.
inline void add_accept_step(const TrellisGraph& graph, int32_t state, BestAlignment& out) {
  if (!graph.has_node_weights) return;
  const auto k = std::ranges::find(graph.accept, state) - graph.accept.begin();
  out.steps.push_back({graph.accept_weight(static_cast<size_t>(k)), -1, kEpsilon});
}

/// Among arcs on best paths, finds the first in the order of the arcs of the product: epsilon arcs
/// first, then by label, then by arc.
class FirstArc {
 public:
  /// Offers a term of an out-row. `slot` is the position of its label, or -1 if it consumes no
  /// frame.
  void offer(int32_t term, int32_t slot, int32_t arc) {
    if (slot > slot_ || (slot == slot_ && arc > arc_)) return;
    term_ = term;
    slot_ = slot;
    arc_ = arc;
  }
  /// The term of that arc; -1 if none was offered.
  int32_t term() const { return term_; }
  int32_t arc() const { return arc_; }
  bool takes_frame() const { return slot_ >= 0; }

 private:
  int32_t term_ = -1, slot_ = std::numeric_limits<int32_t>::max(), arc_ = 0;
};

/// Among start nodes, finds the best. Of equals it is the first; without node weights, a start
/// where the path can end immediately comes before all others.
class BestStart {
 public:
  /// Offers a start, which `id` identifies. `can_end` says that a path may end there.
  void offer(double score, int32_t id, bool can_end) {
    if (!(score > score_ || (score == score_ && score == 0.0 && can_end && !can_end_))) return;
    score_ = score;
    id_ = id;
    can_end_ = can_end;
  }
  double score() const { return score_; }
  /// -1 if there is no path.
  int32_t id() const { return id_; }

 private:
  double score_ = kNegInf;
  int32_t id_ = -1;
  bool can_end_ = false;
};

}  // namespace arcgrad::trellis
