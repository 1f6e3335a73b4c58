#pragma once

// The state of PathScores. It is filled by one of the recursions (path_scores_acyclic,
// path_scores_best, path_scores_cyclic) and read by the derivatives (path_scores_derivatives).

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/scaled.h"
#include "arcgrad/algorithms/sparse_lu.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/core/topology.h"
#include "arcgrad/core/weights.h"

namespace arcgrad {

/// Along the arcs, or against them.
enum class Direction : uint8_t { forward, reverse };

/// Which path scores to compute.
struct PathOptions {
  const char* op = "";
  Direction direction = Direction::forward;
  Semiring semiring = Semiring::log;
  /// Stores what the derivatives need.
  bool keep = false;
  /// The index of the weight of the first source, which those of the other sources follow; -1 if
  /// sources have no weights.
  int32_t source_weights = -1;
  /// Only paths that end here count, so a cycle elsewhere may diverge. Nothing: all nodes.
  std::optional<std::span<const int32_t>> targets = std::nullopt;
  /// Adds in the log domain, which is slow, but gives a single path exactly the sum of its arcs.
  bool exact_sums = false;
  /// Node ids to print in errors; empty: the ids of the topology.
  std::span<const int32_t> names = {};
};

/// A strongly connected component with the LU factors of (identity - arcs). Arc weights are
/// relative to the scores of the best paths, so that no entry overflows.
struct FactoredComponent {
  std::vector<int32_t> nodes;  // those that paths reach
  std::vector<double> scale;   // their scores relative to the best paths, as plain numbers
  SparseLu lu;
  /// Turns the mass that enters each node from outside into all mass that flows through it.
  void solve_mass(Buffer<double>& mass) const;
};

/// A source with a weight.
struct WeightedSource {
  int32_t node, weight;  // the index of the weight
  double score;
  /// The local posterior of beginning at this node is term * inverse_sum[node].
  double term = 0.0;
};

struct PathTable {
  TopologyPtr topology;
  /// The arcs by which paths arrive at each node: incoming arcs, or outgoing ones in reverse.
  const Adjacency* adjacency = nullptr;
  bool keep = false;
  /// The node at each position of the recursion; empty if position p is node p, or node p from the
  /// end if the direction is reverse.
  std::vector<int32_t> order;
  bool is_reverse = false;

  Buffer<Scaled> log_scores;    // log semiring
  Buffer<double> plain_scores;  // tropical semiring, and exact sums without cycles

  /// The index in `components` of each node, or -1; empty without cycles.
  std::vector<int32_t> component_of;
  std::vector<FactoredComponent> components;

  // Tropical semiring only:
  /// The slot of the best arc, or -1.
  Buffer<int32_t> best_slot;
  /// The node at the other end of that arc, so that a traceback does not read `adjacency`; empty
  /// with cycles.
  Buffer<int32_t> best_node;
  /// With cycles: the component of the node, and how many arcs of its best path are inside.
  Buffer<std::pair<int32_t, int32_t>> length_inside;
  /// If arcs reach far, a traceback finds the best arcs from the weights instead of these three.
  Weights weights;
  Buffer<uint8_t> is_source;  // unless its weight is -inf
  /// All sources, and the index of each of their nodes among them; empty if sources have no
  /// weights.
  std::vector<WeightedSource> sources;
  Buffer<int32_t> source_of;  // of other nodes it is not set

  /// The score of the empty path at a node, or -inf. Where scores tie, an empty path without a
  /// weight precedes any arc, and a source weight comes after all arcs.
  double begin(int32_t node) const {
    if (!is_source[node]) return kNegInf;
    return sources.empty() ? 0.0 : sources[source_of[node]].score;
  }
  /// Stores the term of beginning at a node.
  void set_source_term(int32_t node, double term) {
    if (!sources.empty() && is_source[node]) sources[source_of[node]].term = term;
  }

  /// The local posterior of slot k of node n is term[k] * inverse_sum[n]. Stored as Weights because
  /// these buffers are recycled.
  Weights term_buffer;
  double* term = nullptr;
  Buffer<double> inverse_sum;

  int32_t node(int32_t position) const {
    if (!order.empty()) return order[position];
    return is_reverse ? topology->num_nodes() - 1 - position : position;
  }
  const FactoredComponent* component(int32_t node) const {
    return component_of.empty() || component_of[node] < 0 ? nullptr
                                                          : &components[component_of[node]];
  }
  double score(int32_t node) const {
    return log_scores.empty() ? plain_scores[node] : log(log_scores[node]);
  }
};

}  // namespace arcgrad
