#include "arcgrad/algorithms/path_scores_best.h"

#include <algorithm>

#include "arcgrad/algorithms/acyclic_forward.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The Viterbi recursion without cycles, with back-pointers: best_slot[d] is the first arc whose
// score(s) + w is the maximum. If arcs reach far, memory bandwidth limits the recursion, so it
// writes the scores only. A traceback visits few nodes, and finds their best arcs by computing the
// same sums again, which are equal to the last bit.

namespace arcgrad {
namespace {

/// Prefetch distances in slots, for data read sequentially and for nodes where arcs reach far.
constexpr int32_t kFarAhead = 512, kNodesAhead = 64;
/// How often loops over nodes check for Ctrl-C.
constexpr int32_t kNodesPerPoll = 4096;

template <class T>
void run(PathTable& table, const T* weight) {
  const Adjacency& adjacency = *table.adjacency;
  double* const scores = table.plain_scores.data();
  const int32_t num_nodes = table.topology->num_nodes();
  const int32_t last_slot = std::max(static_cast<int32_t>(adjacency.node.size()) - 1, 0);
  const int32_t ahead = table.is_reverse ? -kFarAhead : kFarAhead;
  const bool is_weighted = !table.sources.empty();
  for (int32_t position = 0; position < num_nodes; ++position) {
    if (position % kNodesPerPoll == kNodesPerPoll - 1) [[unlikely]]
      poll_interrupt();
    const int32_t d = table.node(position);
    const int32_t soon = std::clamp(adjacency.offset[d] + ahead, 0, last_slot);
    __builtin_prefetch(adjacency.node.data() + soon);
    __builtin_prefetch(weight + soon);
    const double begin = table.begin(d);
    double best = is_weighted ? kNegInf : begin;
    int32_t slot = -1;
    for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
      const double score = scores[adjacency.node[k]] + weight[adjacency.arc(k)];
      if (score > best) {
        best = score;
        slot = k;
      }
    }
    if (is_weighted && begin > best) {
      best = begin;
      slot = -1;
    }
    scores[d] = best;
    table.best_slot[d] = slot;
    table.best_node[d] = slot < 0 ? -1 : adjacency.node[slot];
  }
}

template <class T>
void run_far(PathTable& table, const T* weight) {
  const int32_t *offset = table.adjacency->offset.data(), *dst = table.adjacency->node.data();
  double* const scores = table.plain_scores.data();
  for (int32_t s = table.topology->num_nodes() - 1; s >= 0; --s) {
    if (s % kNodesPerPoll == kNodesPerPoll - 1) [[unlikely]]
      poll_interrupt();
    const int32_t first = offset[s], ahead = first >= kNodesAhead ? kNodesAhead : 0;
    if (first >= kFarAhead) {
      __builtin_prefetch(dst + first - kFarAhead);
      __builtin_prefetch(weight + first - kFarAhead);
    }
    double best = kNegInf;
    // The first arc comes last, since it often ends at the node visited just before.
    for (int32_t k = offset[s + 1] - 1; k >= first; --k) {
      prefetch_far(&scores[dst[k - ahead]]);
      best = std::max(best, scores[dst[k]] + weight[k]);
    }
    scores[s] = std::max(best, table.begin(s));
  }
}

/// The entry of best_slot that run_far() did not write. Slots are arcs there.
template <class T>
int32_t find_best_slot(const PathTable& table, const T* weight, int32_t node) {
  const Buffer<double>& scores = table.plain_scores;
  const double best = scores[node];
  if (best == kNegInf || (table.sources.empty() && table.begin(node) == best)) return -1;
  const int32_t end = table.adjacency->offset[node + 1];
  for (int32_t k = table.adjacency->offset[node]; k < end; ++k)
    if (scores[table.adjacency->node[k]] + weight[k] == best) return k;
  return -1;  // the path begins here
}

int32_t best_arc(const PathTable& table, int32_t node) {
  if (table.best_slot.empty())
    return dispatch(table.weights.dtype(), [&](auto kind) {
      return find_best_slot(table, table.weights.view<decltype(kind)>().data(), node);
    });
  const int32_t slot = table.best_slot[node];
  return slot < 0 ? -1 : table.adjacency->arc(slot);
}

}  // namespace

void run_best(PathTable& table, const Weights& weights) {
  const auto num_nodes = static_cast<size_t>(table.topology->num_nodes());
  table.plain_scores.resize(num_nodes);
  table.best_slot.resize(num_nodes);
  table.best_node.resize(num_nodes);
  dispatch(weights.dtype(), [&](auto kind) { run(table, weights.view<decltype(kind)>().data()); });
}

void run_best_far(PathTable& table, const Weights& weights) {
  table.plain_scores.resize(static_cast<size_t>(table.topology->num_nodes()));
  table.weights = weights;
  dispatch(weights.dtype(),
           [&](auto kind) { run_far(table, weights.view<decltype(kind)>().data()); });
}

bool best_path_precedes(const PathTable& table, int32_t node, int32_t other) {
  if (!table.length_inside.empty()) {
    const auto [component, length] = table.length_inside[node];
    const auto [other_component, other_length] = table.length_inside[other];
    if (component == other_component && length != other_length) return length < other_length;
  }
  return best_arc(table, node) < best_arc(table, other);
}

Column trace_back(const PathTable& table, int32_t node) {
  Column arcs;
  const Adjacency& adjacency = *table.adjacency;
  InterruptPoll poll;
  const auto add_source = [&](int32_t n) {
    if (!table.sources.empty()) arcs.push_back(table.sources[table.source_of[n]].weight);
    return arcs;
  };
  int32_t n = node;
  if (!table.best_slot.empty()) {
    for (int32_t k; (k = table.best_slot[n]) >= 0;
         n = table.best_node.empty() ? adjacency.node[k] : table.best_node[n]) {
      poll();
      arcs.push_back(adjacency.arc(k));
    }
    return add_source(n);
  }
  dispatch(table.weights.dtype(), [&](auto kind) {
    const auto* weight = table.weights.view<decltype(kind)>().data();
    const int32_t last = table.topology->num_arcs() - 1;
    for (int32_t k; (k = find_best_slot(table, weight, n)) >= 0; n = adjacency.node[k]) {
      poll();
      // Two cache lines of each, since a step skips some nodes.
      const int32_t soon = std::min(k + kFarAhead, last);
      for (int32_t a : {soon, std::min(soon + 16, last)}) {
        __builtin_prefetch(&adjacency.node[a]);
        __builtin_prefetch(weight + a);
      }
      arcs.push_back(k);
    }
  });
  return add_source(n);
}

}  // namespace arcgrad
