#include <algorithm>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/label_codes.h"
#include "arcgrad/algorithms/pair_graph.h"
#include "arcgrad/algorithms/subsets.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/grad_mode.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Properties of a graph, all in one place. Only structure counts: an arc of weight -inf is an arc.

namespace arcgrad {
namespace {

/// Whether some cycle has only arcs that are epsilon on both sides.
bool has_epsilon_cycle(const Topology& t) {
  Arrays silent;
  silent.num_nodes = t.num_nodes();
  for (int32_t a = 0; a < t.num_arcs(); ++a)
    if (t.ilabel()[a] == kEpsilon && t.olabel()[a] == kEpsilon) {
      silent.src.push_back(t.src()[a]);
      silent.dst.push_back(t.dst()[a]);
    }
  silent.ilabel.assign(silent.src.size(), kEpsilon);
  return !Topology(std::move(silent)).is_acyclic();
}

Buffer<uint32_t> codes_of(std::span<const int32_t> labels) {
  Buffer<uint32_t> codes;
  for (const int32_t label : labels) codes.push_back(static_cast<uint32_t>(label) + 1);
  return codes;
}

/// The output labels of two paths with the same input, without their common beginning.
struct Surplus {
  std::vector<int32_t> first, second;
  bool operator==(const Surplus&) const = default;

  /// Appends labels. Returns false if the two strings differ.
  bool append(int32_t to_first, int32_t to_second) {
    if (to_first != kEpsilon) first.push_back(to_first);
    if (to_second != kEpsilon) second.push_back(to_second);
    size_t same = 0;
    while (same < std::min(first.size(), second.size()) && first[same] == second[same]) ++same;
    const auto count = static_cast<std::ptrdiff_t>(same);
    first.erase(first.begin(), first.begin() + count);
    second.erase(second.begin(), second.begin() + count);
    return first.empty() || second.empty();
  }
};

}  // namespace

bool is_acceptor(const Graph& graph) { return graph.topology().is_acceptor(); }

bool is_acyclic(const Graph& graph) { return graph.topology().is_acyclic(); }

bool is_connected(const Graph& graph) { return !connected(graph.topology()).topology; }

bool is_deterministic(const Graph& graph) { return is_deterministic(graph.topology()); }

bool is_epsilon_free(const Graph& graph, std::optional<Side> side) {
  const auto in = graph.topology().ilabel(), out = graph.topology().olabel();
  for (size_t a = 0; a < in.size(); ++a) {
    const bool is_epsilon[] = {in[a] == kEpsilon, out[a] == kEpsilon};
    if (side ? is_epsilon[static_cast<size_t>(*side)] : is_epsilon[0] && is_epsilon[1])
      return false;
  }
  return true;
}

// The difference between the outputs of two paths with the same input must depend only on the nodes
// that they reach, if these have a common future (Beal, Carton, Prieur and Sakarovitch 2003,
// "Squaring transducers").
bool is_functional(const Graph& graph) {
  const Topology& t = graph.topology();
  if (t.is_acceptor()) return true;
  const PairGraph pairs("is_functional", t, codes_of(t.ilabel()));
  std::vector<std::optional<Surplus>> surplus(static_cast<size_t>(pairs.size()));
  for (int32_t id = 0; id < pairs.num_starts(); ++id) surplus[id] = Surplus();
  const auto label = [&](int32_t arc) { return arc < 0 ? kEpsilon : t.olabel()[arc]; };
  std::vector<int32_t> open;
  for (int32_t id = 0; id < pairs.num_starts(); ++id) open.push_back(id);
  InterruptPoll poll;
  while (!open.empty()) {
    const int32_t id = open.back();
    open.pop_back();
    if (!pairs.is_useful(id)) continue;
    const auto [p, q, filter] = pairs.pair(id);
    if (t.is_accept(p) && t.is_accept(q) && surplus[id] != Surplus()) return false;
    for (const PairGraph::PairStep& step : pairs.steps(id)) {
      if (!pairs.is_useful(step.to)) continue;
      Surplus next = *surplus[id];
      poll(1 + std::ssize(next.first) + std::ssize(next.second));
      if (!next.append(label(step.first), label(step.second))) return false;
      if (surplus[step.to]) {
        if (*surplus[step.to] != next) return false;
      } else {
        surplus[step.to] = std::move(next);
        open.push_back(step.to);
      }
    }
  }
  return true;
}

bool is_string(const Graph& graph) {
  const Topology& t = graph.topology();
  if (t.start().size() != 1 || t.accept().size() != 1 || !is_connected(graph)) return false;
  return t.num_arcs() == t.num_nodes() - 1 &&
         std::ranges::all_of(t.num_in(), [](int32_t degree) { return degree <= 1; });
}

bool is_unambiguous(const Graph& graph) {
  const GradMode off(false);
  const Graph useful = connect(graph);
  if (has_epsilon_cycle(useful.topology())) return false;
  // With weights of zero, the sum over paths of epsilon arcs is the logarithm of their number.
  const Graph counts = remove(
      Graph(useful.topology_ptr(), Weights::zeros(useful.num_weights(), DType::float64)), kEpsilon);
  const Topology& t = counts.topology();
  for (const double weight : counts.weights().to_vector())
    if (weight > 0.5) return false;
  // Two paths of one string part at start nodes, or at a node with two arcs.
  const LabelCodes codes(t);
  const PairGraph pairs("is_unambiguous", t, codes.of_arcs());
  for (int32_t id = 0; id < pairs.size(); ++id) {
    const auto [p, q, filter] = pairs.pair(id);
    if (p != q) {
      if (id < pairs.num_starts() && pairs.is_useful(id)) return false;
      continue;
    }
    for (const PairGraph::PairStep& step : pairs.steps(id))
      if (step.first != step.second && step.first >= 0 && step.second >= 0 &&
          pairs.is_useful(step.to))
        return false;
  }
  return true;
}

}  // namespace arcgrad
