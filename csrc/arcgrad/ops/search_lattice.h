#pragma once

// The lattice of a beam search: which part of it is within the lattice beam, and how it becomes a
// graph.

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/core/semiring.h"

namespace arcgrad {

/// An arc of the lattice: an arc of the graph taken at a frame, or between frames (-1) if it is an
/// epsilon arc.
template <class T>
struct LatticeArc {
  int32_t src, dst, arc, frame;
  T weight;
};

/// What an arc matches in a graph with failure or rest arcs: a label, after the graph backed off
/// from node `from` to its source.
struct LatticeMatch {
  int32_t label, from;
};

/// A start or accept node of the lattice, its weight, and the index of that among the weights of
/// the graph, or -1.
template <class T>
struct LatticeEnd {
  int32_t node, index;
  T weight;
};

/// The kept nodes and arcs. Nodes are in topological order, and so are arcs.
template <class T>
struct SearchLattice {
  int32_t num_nodes = 0;
  std::vector<LatticeEnd<T>> start, accept;
  PodVector<LatticeArc<T>> arcs;
  PodVector<LatticeMatch> matches;  // of each arc, if the graph has failure or rest arcs
};

/// The nodes and arcs of a lattice on paths within lattice_beam of the best path.
struct Selection {
  std::vector<int32_t> node;  // new ids, or -1
  int32_t num_nodes = 0;
  std::vector<bool> has_arc;
  std::vector<bool> is_start, is_accept;  // of the start and accept nodes of the lattice
};

template <class T>
Selection select(const SearchLattice<T>& lattice, double lattice_beam) {
  const auto num_nodes = static_cast<size_t>(lattice.num_nodes);
  const int64_t num_arcs = lattice.arcs.size();
  Selection out{std::vector<int32_t>(num_nodes, -1),
                0,
                std::vector<bool>(static_cast<size_t>(num_arcs)),
                {},
                {}};
  Buffer<double> to_end(num_nodes, kNegInf);
  for (const auto& end : lattice.accept) to_end[end.node] = static_cast<double>(end.weight);
  for (int64_t k = num_arcs; k-- > 0;) {
    const LatticeArc<T>& a = lattice.arcs[k];
    to_end[a.src] = std::max(to_end[a.src], static_cast<double>(a.weight) + to_end[a.dst]);
  }
  double best = kNegInf;
  for (const auto& end : lattice.start)
    best = std::max(best, static_cast<double>(end.weight) + to_end[end.node]);
  // The loss of a node is the difference between the best score and the score of the best path
  // through it. Each step adds its difference to the best continuation, so the loss of a best path
  // is exactly zero in spite of rounding.
  Buffer<double> loss(num_nodes, -kNegInf);
  const auto keep = [&](int32_t node, double value) {
    loss[node] = std::min(loss[node], value);
    out.node[node] = 0;
  };
  for (const auto& end : lattice.start) {
    const double score = static_cast<double>(end.weight) + to_end[end.node];
    out.is_start.push_back(score > kNegInf && best - score <= lattice_beam);
    if (out.is_start.back()) keep(end.node, best - score);
  }
  for (int64_t k = 0; k < num_arcs; ++k) {
    const LatticeArc<T>& a = lattice.arcs[k];
    if (out.node[a.src] < 0 || to_end[a.dst] == kNegInf) continue;
    const double score = static_cast<double>(a.weight) + to_end[a.dst];
    const double value = loss[a.src] + (to_end[a.src] - score);
    if (!(value <= lattice_beam)) continue;
    out.has_arc[static_cast<size_t>(k)] = true;
    keep(a.dst, value);
  }
  for (const auto& end : lattice.accept) {
    const double value = loss[end.node] + (to_end[end.node] - static_cast<double>(end.weight));
    out.is_accept.push_back(end.weight > kNegInf && value <= lattice_beam);
  }
  for (int32_t& id : out.node)
    if (id == 0) id = out.num_nodes++;
  return out;
}

/// The chosen part of a lattice as a graph, its arcs ordered by source node.
template <class T>
Graph record_lattice(const char* op, const Graph& graph, const Graph& emissions,
                     const SearchLattice<T>& lattice, const Selection& chosen) {
  const Topology& t = graph.topology();
  const Failures* failures = find_failures(op, t, Side::input);
  const auto ilabel = t.ilabel(), olabel = t.olabel();
  const int32_t labels = emissions.topology().dense()->labels;
  Arrays out;
  out.num_nodes = chosen.num_nodes;
  out.has_node_weights = t.has_node_weights();
  std::vector<int32_t> node_weights;
  const auto add_ends = [&](const auto& ends, const std::vector<bool>& is_kept, Column& nodes) {
    for (size_t i = 0; i < ends.size(); ++i) {
      // Without node weights, all ends of paths that are kept stay.
      if (out.has_node_weights ? !is_kept[i] : chosen.node[ends[i].node] < 0) continue;
      nodes.push_back(chosen.node[ends[i].node]);
      if (out.has_node_weights) node_weights.push_back(ends[i].index);
    }
  };
  add_ends(lattice.start, chosen.is_start, out.start);
  add_ends(lattice.accept, chosen.is_accept, out.accept);
  std::vector<int32_t> next(static_cast<size_t>(out.num_nodes) + 1);
  size_t count = 0;
  for (int64_t k = 0; k < lattice.arcs.size(); ++k)
    if (chosen.has_arc[static_cast<size_t>(k)]) {
      ++next[chosen.node[lattice.arcs[k].src] + 1];
      ++count;
    }
  for (size_t n = 0; n + 1 < next.size(); ++n) next[n + 1] += next[n];
  for (auto* column : {&out.src, &out.dst, &out.ilabel}) column->resize(count);
  if (!t.is_acceptor()) out.olabel.resize(count);
  std::vector<int32_t> graph_arcs(count), emission_arcs(count);
  FailureSteps steps(count);
  for (int64_t k = 0; k < lattice.arcs.size(); ++k) {
    if (!chosen.has_arc[static_cast<size_t>(k)]) continue;
    const LatticeArc<T>& a = lattice.arcs[k];
    const int32_t at = next[chosen.node[a.src]]++;
    out.src[at] = chosen.node[a.src];
    out.dst[at] = chosen.node[a.dst];
    int32_t label = ilabel[a.arc];
    out.ilabel[at] = label;
    if (!out.olabel.empty()) out.olabel[at] = olabel[a.arc];
    if (failures) {
      const LatticeMatch& match = lattice.matches[k];
      label = match.label;
      out.ilabel[at] = resolved_label(out.ilabel[at], label);
      if (!out.olabel.empty()) out.olabel[at] = resolved_label(out.olabel[at], label);
      steps.add(*failures, match.from, t.src()[a.arc], at);
    }
    graph_arcs[at] = a.arc;
    emission_arcs[at] = a.frame < 0 ? -1 : a.frame * labels + label;
  }
  out.symbols = compose_symbols(op, emissions, graph);
  graph_arcs.insert(graph_arcs.end(), node_weights.begin(), node_weights.end());
  std::vector<Moved> inputs{{graph, ArcMap::gather(std::move(graph_arcs))},
                            {emissions, ArcMap::gather(std::move(emission_arcs))}};
  for (ArcMap& map : std::move(steps).maps()) inputs.push_back({graph, std::move(map)});
  return record_moves(op, std::make_shared<Topology>(std::move(out)), std::move(inputs));
}

}  // namespace arcgrad
