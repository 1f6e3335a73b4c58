#include "arcgrad/gtn/best_path.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/product.h"
#include "arcgrad/gtn/compose.h"
#include "arcgrad/runtime/interrupt_poll.h"

// The nodes are visited by Kahn's algorithm with a first-in, first-out queue, and each one passes
// its score to the nodes behind it. For `path` the first of equally good arcs wins, in the order in
// which they are visited; for `score` the one that comes first among the arcs into the node.

namespace arcgrad::gtn {
namespace {

/// The path that back-pointers describe, backwards from `node`.
template <class Pointers>
BestPath trace_back(const Topology& t, const Pointers& pointer, int32_t node, double score) {
  BestPath path;
  if (node < 0) return path;
  path.score = score;
  for (int32_t a; (a = pointer[node]) >= 0; node = t.src()[a]) path.arcs.push_back(a);
  path.start = node;
  std::ranges::reverse(path.arcs);
  return path;
}

}  // namespace

BestPath find_best_path(const char* op, const Graph& graph, const ArcOrder& order, Ties ties) {
  const Topology& t = graph.topology();
  if (!t.is_acyclic()) return arcgrad::find_best_path(op, graph);
  const auto num_nodes = static_cast<size_t>(t.num_nodes());
  const ArcList list(t, Side::input, order);
  std::vector<int32_t> missing(t.num_in().begin(), t.num_in().end()), queue, pointer(num_nodes, -1);
  std::vector<double> scores(num_nodes, kNegInf);
  queue.reserve(num_nodes);
  for (size_t n = 0; n < num_nodes; ++n)
    if (missing[n] == 0) queue.push_back(static_cast<int32_t>(n));
  if (ties == Ties::path)
    for (const int32_t n : t.start()) scores[n] = 0.0;
  // The position of an arc among those into its node: sorted lists are in the order of the labels.
  const auto label = t.label(order.side.value_or(Side::input));
  const auto precedes = [&](int32_t a, int32_t b) {
    return order.side && label[a] != label[b] ? label[a] < label[b] : a < b;
  };
  const Weights weights = graph.weights();
  dispatch(weights.dtype(), [&](auto kind) {
    const auto* const weight = weights.view<decltype(kind)>().data();
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t n = queue[head];
      // A start node is a path of score 0, which loses against arcs here.
      if (ties == Ties::score && t.is_start(n) && scores[n] < 0.0) {
        scores[n] = 0.0;
        pointer[n] = -1;
      }
      for (int32_t k = list.begin(n), end = list.begin(n + 1); k < end; ++k) {
        const int32_t a = list.arc(k), d = list.dst(a);
        const double score = scores[n] + static_cast<double>(weight[a]);
        const bool is_first =
            ties == Ties::score && score == scores[d] && pointer[d] >= 0 && precedes(a, pointer[d]);
        if (score > scores[d] || is_first) {
          scores[d] = score;
          pointer[d] = a;
        }
        if (--missing[d] == 0) queue.push_back(d);
      }
    }
  });
  int32_t best = -1;
  double score = kNegInf;
  for (const int32_t n : t.accept())
    if (scores[n] > score) {
      score = scores[n];
      best = n;
    }
  return trace_back(t, pointer, best, score);
}

Graph best_path_of_product(const char* op, const Graph& graph, Ties ties) {
  const Product& product = *graph.product();
  if (tracks(graph)) product.bypass();
  const Graph factor = graph.calc_grad() ? product.graph() : product.graph().detach();
  const Graph emissions = graph.calc_grad() ? product.emissions() : product.emissions().detach();
  const Topology& t = factor.topology();
  const int32_t num_frames = emissions.topology().dense()->frames;
  const int32_t num_labels = emissions.topology().dense()->labels;
  const ArcList list(t, product.side(), order_of(product));
  const Weights weights = factor.weights(), scores_of_labels = emissions.weights();

  // The nodes of a frame in the order of the visits, and the arc by which each was reached.
  struct Frame {
    std::vector<int32_t> nodes, arcs;
  };
  std::vector<Frame> frames(static_cast<size_t>(num_frames) + 1);
  frames[0].nodes.assign(t.start().begin(), t.start().end());
  std::vector<int32_t> numbered = frames[0].nodes;  // a frame in the order of the product
  std::vector<double> scores(static_cast<size_t>(t.num_nodes()), kNegInf), next(scores);
  std::vector<int32_t> pointer(scores.size(), -1), last(scores.size(), -1);
  for (const int32_t n : frames[0].nodes) scores[n] = 0.0;
  InterruptPoll poll;
  int32_t position = 0;
  // Replaces the nodes of a frame by those of the next one, whose entries of `is_next` are not -1.
  const auto number_next = [&](std::vector<int32_t>& nodes, std::vector<int32_t>& is_next) {
    std::vector<int32_t> found;
    for (const int32_t n : nodes)
      for (int32_t k = list.begin(n), end = list.begin(n + 1); k < end; ++k) {
        const int32_t c = list.label(list.arc(k)), d = list.dst(list.arc(k));
        if (c < 0 || c >= num_labels || is_next[d] < 0) continue;
        is_next[d] = -1;
        found.push_back(d);
      }
    nodes = std::move(found);
  };
  const auto run = [&](auto kind, const auto* weight, const auto* label_score) {
    using T = decltype(kind);
    for (int32_t f = 0; f < num_frames; ++f, label_score += num_labels) {
      Frame& to = frames[f + 1];
      for (const int32_t n : frames[f].nodes) {
        for (int32_t k = list.begin(n), end = list.begin(n + 1); k < end; ++k) {
          const int32_t a = list.arc(k), c = list.label(a), d = list.dst(a);
          if (c < 0 || c >= num_labels) continue;
          // The weight that the arc of the product would have.
          const T w = static_cast<T>(weight[a]) + static_cast<T>(label_score[c]);
          const double score = scores[n] + static_cast<double>(w);
          if (last[d] < 0) to.nodes.push_back(d);
          last[d] = position++;
          if (score > next[d]) {
            next[d] = score;
            pointer[d] = a;
          }
        }
        poll(1 + list.begin(n + 1) - list.begin(n));
        scores[n] = kNegInf;
      }
      // The product numbers a node at the first arc into it, in the order of the numbers; Kahn's
      // algorithm visits it after the last one, in the order of the visits.
      if (ties == Ties::path) {
        std::ranges::sort(to.nodes, {}, [&](int32_t n) { return last[n]; });
        number_next(numbered, last);
      } else {
        numbered = to.nodes;
      }
      to.arcs.reserve(to.nodes.size());
      for (const int32_t n : to.nodes) {
        to.arcs.push_back(std::exchange(pointer[n], -1));
        last[n] = -1;
      }
      position = 0;
      scores.swap(next);
    }
  };
  dispatch(weights.dtype(), [&](auto first) {
    dispatch(scores_of_labels.dtype(), [&](auto second) {
      using T = decltype(first + second);
      run(T{}, weights.view<decltype(first)>().data(),
          scores_of_labels.view<decltype(second)>().data());
    });
  });

  int32_t node = -1;
  double best = kNegInf;
  for (const int32_t n : numbered)
    if (t.is_accept(n) && scores[n] > best) {
      best = scores[n];
      node = n;
    }
  std::vector<int32_t> arcs, emission_arcs;
  Arrays chain;
  if (node >= 0) {
    for (int32_t f = num_frames; f > 0; --f) {
      const Frame& frame = frames[f];
      const auto at = std::ranges::find(frame.nodes, node) - frame.nodes.begin();
      const int32_t a = frame.arcs[at];
      arcs.push_back(a);
      emission_arcs.push_back((f - 1) * num_labels + list.label(a));
      node = t.src()[a];
    }
    std::ranges::reverse(arcs);
    std::ranges::reverse(emission_arcs);
    chain = path_arrays(t, arcs);
  }
  return record_moves(op, std::move(chain),
                      {{factor, ArcMap::gather(std::move(arcs))},
                       {emissions, ArcMap::gather(std::move(emission_arcs))}});
}

}  // namespace arcgrad::gtn
