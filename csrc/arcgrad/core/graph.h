#pragma once

// Graph, the handle that programs use, and graphs of simple shapes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arcgrad/core/topology.h"
#include "arcgrad/core/weights.h"

namespace arcgrad {

struct GraphState;
struct NodeWeights;
struct Var;
class Product;

/// A weighted finite-state transducer: a shared topology, weights, and a place on the tape.
///
/// A Graph is a handle: copies of it refer to the same graph. Weights are log-domain scores: larger
/// is better, and -inf is impossible.
class Graph {
 public:
  /// An empty graph, to be built with add_node() and add_arc().
  explicit Graph(bool calc_grad = true, DType dtype = DType::float32);
  explicit Graph(std::shared_ptr<GraphState> state) : state_(std::move(state)) {}
  /// A null handle.
  Graph(std::nullptr_t) {}
  explicit operator bool() const { return state_ != nullptr; }
  /// A leaf with this topology and these weights.
  Graph(TopologyPtr topology, Weights weights, bool calc_grad = false);

  /// A graph from arrays with one entry per arc, which are checked. `arrays.olabel` may be empty
  /// for an acceptor. With `arrays.has_node_weights`, one weight per entry of `arrays.start` and
  /// then of `arrays.accept` follow those of the arcs.
  static Graph from_arrays(Arrays arrays, Weights weights, bool calc_grad = true);

  /// A weight for a start or accept node gives the graph node weights, which are 0 where not given.
  int32_t add_node(bool start = false, bool accept = false,
                   std::optional<double> start_weight = std::nullopt,
                   std::optional<double> accept_weight = std::nullopt);
  int32_t add_arc(int32_t src, int32_t dst, int32_t label);
  int32_t add_arc(int32_t src, int32_t dst, int32_t ilabel, int32_t olabel, double weight = 0.0);
  void make_start(int32_t node, std::optional<double> weight = std::nullopt);
  void make_accept(int32_t node, std::optional<double> weight = std::nullopt);
  /// Replace the weight of a start or accept node, as set_weight() does that of an arc.
  void set_start_weight(int32_t node, double weight);
  void set_accept_weight(int32_t node, double weight);

  /// Attaches symbols to the labels; null removes them. Earlier results do not change.
  void set_symbols(SymbolTables symbols);

  const Topology& topology() const { return *topology_ptr(); }
  const TopologyPtr& topology_ptr() const;
  /// Contiguous weights, num_weights() in all: one per arc, and the node weights behind them.
  Weights weights() const;
  /// The same as they are stored. Borrowed weights may have strides.
  const Weights& raw_weights() const;
  DType dtype() const;

  int32_t num_nodes() const { return topology().num_nodes(); }
  int32_t num_arcs() const { return topology().num_arcs(); }
  /// The number of weights, with node weights.
  int32_t num_weights() const { return topology().num_weights(); }
  /// The arcs that leave a node, and those that enter it, ascending. Adding arcs and reading them
  /// in turn takes amortized constant time per arc.
  std::vector<int32_t> out_arcs(int32_t node) const { return arcs_of(node, 0); }
  std::vector<int32_t> in_arcs(int32_t node) const { return arcs_of(node, 1); }
  double weight(int32_t arc) const;
  /// The weights of the arcs.
  std::vector<double> weights_to_vector() const;
  bool has_node_weights() const;
  /// The weights of the start (accept) nodes, in their order; zeros without node weights.
  std::vector<double> start_weights() const;
  std::vector<double> accept_weights() const;
  /// The weight of the only arc.
  double item() const;

  /// Replaces the weights of the arcs by a new buffer, so that earlier results do not change. A
  /// graph that an op made becomes a leaf.
  void set_weights(Weights weights);
  void set_weights(std::span<const double> weights);
  void set_weight(int32_t arc, double weight);

  bool calc_grad() const;
  /// Switching it off drops the gradient and the op that made the graph.
  void set_calc_grad(bool calc_grad);
  /// The gradient, a graph with the same topology. Throws TapeError if there is none.
  Graph grad() const;
  bool is_grad_available() const;
  void zero_grad();
  /// Makes backward() store the gradient of this graph even if an op made it.
  Graph& retain_grad();
  /// The same topology and weights as a graph without calc_grad.
  Graph detach() const;
  /// A handle that later edits of this graph do not change, with the same place on the tape.
  Graph snapshot() const;

  /// The composition that this graph is, if it is lazy; else null. The first access to its arcs or
  /// weights materializes them.
  const Product* product() const;

  /// The place of this graph on the tape; null without calc_grad.
  std::shared_ptr<Var> var() const;
  const std::shared_ptr<GraphState>& state() const { return state_; }
  bool is_same(const Graph& other) const { return state_ == other.state_; }

 private:
  /// Copies the state if it is a snapshot, which other handles may share.
  void leave_snapshot();
  /// Turns a lazy graph into an ordinary one.
  void materialize();
  /// Returns arrays that may be changed in place, and drops the gradient and the place on the tape.
  Arrays& edit();
  /// Gives edited arrays node weights, which are zero unless it has them.
  NodeWeights& edit_node_weights(Arrays& arrays);
  /// Makes room for a start or accept node; returns their weights, or null without node weights.
  std::vector<double>* reserve_end(Arrays& arrays, bool is_start, bool has_weight);
  /// Adds a node to the start or accept nodes.
  void insert_end(Arrays& arrays, int32_t node, bool is_start, std::optional<double> weight);
  void set_end_weight(const char* op, int32_t node, bool is_start, double weight);
  /// Replaces a weight by its index among all weights.
  void replace_weight(int32_t index, double weight);
  /// `end` is 0 for the source of an arc, and 1 for its destination.
  std::vector<int32_t> arcs_of(int32_t node, size_t end) const;

  std::shared_ptr<GraphState> state_;
};

/// Whether `graph` is emissions: a dense linear graph, that is one matrix of scores.
bool is_emissions(const Graph& graph);

/// A dense linear graph: arc t * labels + c goes from node t to t + 1 with label c.
Graph linear_graph(int32_t frames, int32_t labels, bool calc_grad = true,
                   DType dtype = DType::float32);
/// One epsilon arc from a start to an accept node.
Graph scalar_graph(double weight, bool calc_grad = true, DType dtype = DType::float64);
/// A chain that spells `ilabels`, with `olabels` (empty: the same) on the output side.
Graph chain_graph(std::span<const int32_t> ilabels, std::span<const int32_t> olabels = {},
                  bool calc_grad = false, DType dtype = DType::float32);

}  // namespace arcgrad
