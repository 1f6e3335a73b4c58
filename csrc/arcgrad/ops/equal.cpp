#include <algorithm>
#include <compare>

#include "arcgrad/ops.h"
#include "arcgrad/ops/weight_key.h"

// Compares the arcs in the order in which they are stored and, if that differs, sorted.

namespace arcgrad {
namespace {

struct Arc {
  int32_t src, dst, ilabel, olabel;
  uint64_t weight;
  auto operator<=>(const Arc&) const = default;
};

std::vector<Arc> sorted_arcs(const Graph& graph) {
  const Topology& topology = graph.topology();
  const auto src = topology.src(), dst = topology.dst();
  const auto ilabel = topology.ilabel(), olabel = topology.olabel();
  const std::vector<double> weights = graph.weights_to_vector();
  std::vector<Arc> arcs(weights.size());
  for (size_t a = 0; a < arcs.size(); ++a)
    arcs[a] = {src[a], dst[a], ilabel[a], olabel[a], weight_key(weights[a])};
  std::sort(arcs.begin(), arcs.end());
  return arcs;
}

bool same_weights(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, {}, weight_key, weight_key);
}

}  // namespace

bool equal(const Graph& a, const Graph& b) {
  const Topology &first = a.topology(), &second = b.topology();
  if (first.num_nodes() != second.num_nodes() || first.num_arcs() != second.num_arcs() ||
      !std::ranges::equal(first.start(), second.start()) ||
      !std::ranges::equal(first.accept(), second.accept()))
    return false;
  if ((first.has_node_weights() || second.has_node_weights()) &&
      !(same_weights(a.start_weights(), b.start_weights()) &&
        same_weights(a.accept_weights(), b.accept_weights())))
    return false;
  if (same_structure(first, second) && same_weights(a.weights_to_vector(), b.weights_to_vector()))
    return true;
  // No two arcs of a dense graph have the same nodes and label, so sorting changes nothing.
  if (first.dense() && second.dense() && first.num_arcs() > 0) return false;
  return sorted_arcs(a) == sorted_arcs(b);
}

}  // namespace arcgrad
