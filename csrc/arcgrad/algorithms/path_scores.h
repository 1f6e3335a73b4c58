#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/acyclic_forward.h"
#include "arcgrad/algorithms/scaled.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/core/topology.h"
#include "arcgrad/core/weights.h"

namespace arcgrad {

/// Along the arcs, or against them.
enum class Direction : uint8_t { forward, reverse };

/// Strongly connected components with more nodes than this are refused: summing over their cycles
/// takes a dense solve.
inline constexpr int32_t kMaxComponent = 2048;

/// Throws, naming `op` and the first arc whose weight is NaN or +inf, if there is one.
void require_scorable(const char* op, const Weights& weights);

/// The score of all paths from some source nodes to each node, and the derivatives of these scores
/// with respect to the weights.
///
/// The score of a node is a sum over its incoming arcs, and the share of one arc in that sum is its
/// local posterior. First and second derivatives are sweeps over these shares: they are
/// probabilities, so nothing overflows. In the tropical semiring the best arc has share 1.
class PathScores {
 public:
  struct Options {
    const char* op = "";
    Direction direction = Direction::forward;
    Semiring semiring = Semiring::log;
    /// Whether derivatives will be asked for.
    bool keep = false;
    /// Only paths that end here count, so a cycle elsewhere may diverge. Nothing: everywhere.
    std::optional<std::span<const int32_t>> targets = std::nullopt;
    /// Adds in the log domain, which is slow, but gives a single path exactly the sum of its arcs.
    bool exact_sums = false;
    /// What errors call the nodes; empty: their ids.
    std::span<const int32_t> names = {};
  };

  /// Throws if a weight is NaN or +inf, naming the arc, or if a cycle diverges, naming its nodes.
  PathScores(TopologyPtr topology, const Weights& weights, std::span<const int32_t> sources,
             const Options& options);

  double score(int32_t node) const {
    if (acyclic_) return acyclic_->score(node);
    return scores_.empty() ? plain_[node] : log(scores_[node]);
  }
  /// In the tropical semiring, the arc by which the best path arrives at a node, or -1 if the path
  /// has no arc there. Of arcs that are equally good, the first; in a cycle, of the shortest path.
  int32_t best_arc(int32_t node) const;
  /// Whether the best path that arrives at a node goes before that of another one, if both have the
  /// same score: in one component by fewer arcs in it, else by the arc it arrives by.
  bool goes_before(int32_t node, int32_t other) const;
  /// The arcs of the best path that arrives at a node, the last one first.
  Column best_path(int32_t node) const;

  /// In a reverse sweep, the share of the arc in `slot` in the score of `node`, with
  /// `slots().offset` giving its slots.
  double share(int32_t node, int32_t slot) const { return term_[slot] * inverse_sum_[node]; }
  /// The arcs by which the paths of a reverse sweep arrive at each node.
  const Adjacency& slots() const { return *adjacency_; }
  const Topology& topology() const { return *topology_; }

  /// Adds to `grad` the gradient of the sum of seed[n] * score(n).
  void pull_back(Buffer<double> seed, Weights& grad) const;
  /// The derivative of each score when the weights move along `direction`.
  Buffer<double> push_forward(const Weights& direction) const;
  /// Adds to `grad` `factor` times the derivative of what pull_back(seed) gives, when the weights
  /// move along `direction` and the seed along `seed_moved`; `moved` is push_forward(direction).
  void pull_back_moved(Buffer<double> seed, Buffer<double> seed_moved, const Weights& direction,
                       const Buffer<double>& moved, double factor, Weights& grad) const;

 private:
  /// A strongly connected component: the matrix of its arcs, in units of the best paths so that no
  /// entry is out of range, factored for solving.
  struct Block {
    std::vector<int32_t> nodes;  // those that paths reach
    std::vector<double> scale;   // their scores in units of the best paths
    std::vector<double> lu;      // identity minus arcs, factored, row by row
    /// Solves (identity - arcs) x = rhs in place, and the transposed system.
    void solve(std::vector<double>& rhs) const;
    void solve_transposed(std::vector<double>& rhs) const;
    /// Turns what flows into each node from outside into all that flows through it.
    void solve_mass(Buffer<double>& mass) const;
  };
  struct Setup;
  struct Component;

  template <class T>
  void run_acyclic(const T* weight, const Setup& setup);
  template <class T>
  void run_acyclic_exact(const T* weight, const Setup& setup);
  template <class T>
  void run_acyclic_best(const T* weight, const Setup& setup);
  template <class T>
  void run_far_best(const T* weight, const Setup& setup);
  /// What best_slot_ would say of a node.
  template <class T>
  int32_t find_best_slot(const T* weight, int32_t node) const;
  void run_components(const Setup& setup);
  Component gather_component(const Setup& setup, std::vector<int32_t> nodes,
                             const std::vector<int32_t>& local) const;
  void run_component(const Setup& setup, const Component& component);
  void run_component_best(const Setup& setup, Component& component);

  int32_t node(int32_t position) const {
    if (!own_order_.empty()) return own_order_[position];
    return is_backwards_ ? topology_->num_nodes() - 1 - position : position;
  }
  const Block* block(int32_t node) const {
    return block_of_.empty() || block_of_[node] < 0 ? nullptr : &blocks_[block_of_[node]];
  }
  /// Calls `on_node(node)` or `on_block(block)` for everything, in the order of the sweep or
  /// against it.
  template <class OnNode, class OnBlock>
  void visit(bool backwards, OnNode on_node, OnBlock on_block) const;

  TopologyPtr topology_;
  const Adjacency* adjacency_ = nullptr;
  bool keep_ = false;
  /// If it could be done that way, the whole sweep, and nothing below is set.
  std::optional<AcyclicForward> acyclic_;
  /// Node at each position; empty if position p is node p, or node p from the end if the sweep goes
  /// backwards.
  std::vector<int32_t> own_order_;
  bool is_backwards_ = false;
  /// Block that each node belongs to, or -1; empty without blocks.
  std::vector<int32_t> block_of_;
  std::vector<Block> blocks_;
  Buffer<Scaled> scores_;  // log semiring
  Buffer<double> plain_;   // tropical semiring, and exact sums without cycles
  /// In the tropical semiring, the slot of the best arc, or -1.
  Buffer<int32_t> best_slot_;
  /// Of the best path, if there are cycles: the component it ends in, and its arcs there.
  Buffer<std::pair<int32_t, int32_t>> stay_;
  /// Empty if there are cycles. FreeList so that following a path does not look into every arc.
  Buffer<int32_t> best_node_;
  /// If arcs reach far, these instead of the two: what the best arc of a node is found by.
  Weights weights_;
  Buffer<uint8_t> is_source_;
  /// The share of slot k of node n is term_[k] * inverse_sum_[n]. The buffer is that of weights
  /// because that one is fast to get.
  Weights term_buffer_;
  double* term_ = nullptr;
  Buffer<double> inverse_sum_;
};

}  // namespace arcgrad
