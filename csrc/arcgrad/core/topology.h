#pragma once

// Topology: the nodes, arcs and labels of a graph, without weights.
//
// Graphs share topologies, and ops derive values from them: adjacency, a label index, an order of
// the nodes, and in other parts of the library the trellis form. Each value is computed at its
// first use and kept with the topology, so that the ops of later calls find it. Values whose types
// belong to higher rooms are kept in memo slots: type-erased, one per value of Memo, each computed
// once by the function that memo() is given.
//
// Invariants: a shared topology never changes. A memo slot always has the same type and depends
// only on the topology. All functions are safe to call from several threads and after a fork.
//
// Cost: a dense linear topology has no arrays until they are read; a reversed or relabelled one
// shares those of its base.
//
// Node weights: a path may have a weight for its start node and one for its accept node. If a
// topology has node weights, the weights of its graphs follow those of the arcs in the same buffer:
// one per start node, then one per accept node. So gradients have them too, and an arc map may take
// the weight of an arc from a node weight, or the other way round. Recursions over paths run on
// expanded() (algorithms/node_weights.h), which has an arc for each of these weights.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "arcgrad/core/symbol_table.h"
#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/fork_safe_once.h"
#include "arcgrad/runtime/parallel.h"

namespace arcgrad {

/// Throws if `count` nodes or arcs are too many for int32 ids.
void require_size(std::string_view op, std::string_view what, int64_t count);

/// The arcs that leave or enter each node, in compressed sparse row form: node n has the slots
/// [offset[n], offset[n + 1]).
struct Adjacency {
  Column offset;
  /// The arc of each slot, ascending within a node; empty if slot k is arc k.
  Column arcs;
  /// The other node of the arc of each slot.
  std::span<const int32_t> node;
  /// What `node` points to, unless that is a column of the topology.
  Column own_node;

  int32_t arc(int32_t slot) const { return arcs.empty() ? slot : arcs[static_cast<size_t>(slot)]; }
};

/// The arcs that leave each node, sorted by label for binary search.
struct LabelIndex {
  Column offset, label, arc, dst;
};

/// A topological order of the strongly connected components, see order() in topology.cpp.
struct Order {
  /// The node at each position; empty if position p is node p.
  std::vector<int32_t> nodes;
  /// Component c is at positions [component[c], component[c + 1]). Empty if the graph is acyclic;
  /// every node is then a component.
  std::vector<int32_t> component;

  bool is_acyclic() const { return component.empty(); }
  int32_t node(int32_t position) const {
    return nodes.empty() ? position : nodes[static_cast<size_t>(position)];
  }
};

/// The arrays of a topology.
struct Arrays {
  int32_t num_nodes = 0;
  /// Ascending node ids.
  Column start, accept;
  /// One entry per arc. `olabel` may be empty if both labels are equal on every arc.
  Column src, dst, ilabel, olabel;
  SymbolTables symbols = {};
  /// Whether start and accept nodes have weights, see Topology::num_weights().
  bool has_node_weights = false;
  /// Whether the last two nodes and their arcs stand for node weights, see expanded().
  bool is_expanded = false;
};

class Topology;

/// The memo slots: values that higher rooms derive from a topology.
enum class Memo : uint8_t {
  connected,
  has_dead_ends,
  expanded,
  failures_by_input,
  failures_by_output,
  resolved_by_input,
  resolved_by_output,
  trellis_by_input,
  trellis_by_output,
  count
};

/// Nodes, arcs and labels, without weights. Immutable once shared.
class Topology {
 public:
  explicit Topology(Arrays arrays);
  /// A dense linear topology: arc t * labels + c goes from node t to node t + 1 with label c. Its
  /// arrays are made on first access.
  Topology(int32_t frames, int32_t labels);
  /// How a topology differs from its base, whose arrays it shares.
  struct Change {
    bool is_reversed = false;
    /// The sides of the base that the labels come from.
    Side ilabel = Side::input, olabel = Side::output;
  };
  Topology(std::shared_ptr<const Topology> base, Change change);
  /// The base with other symbols.
  Topology(std::shared_ptr<const Topology> base, SymbolTables symbols);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  struct Dense {
    int32_t frames, labels;
  };
  /// The shape of a dense linear topology; empty for others.
  const std::optional<Dense>& dense() const { return dense_; }

  int32_t num_nodes() const { return dense_ ? dense_->frames + 1 : arrays_.num_nodes; }
  int32_t num_arcs() const {
    if (dense_) return dense_->frames * dense_->labels;
    return base_ ? base_->num_arcs() : static_cast<int32_t>(arrays_.src.size());
  }
  bool has_node_weights() const { return arrays_.has_node_weights; }
  bool is_expanded() const { return arrays_.is_expanded; }
  /// The number of weights of a graph with this topology: one per arc and, if it has node weights,
  /// then one per start node and one per accept node.
  int32_t num_weights() const {
    return has_node_weights() ? first_accept_weight() + static_cast<int32_t>(accept().size())
                              : num_arcs();
  }
  int32_t first_start_weight() const { return num_arcs(); }
  int32_t first_accept_weight() const { return num_arcs() + static_cast<int32_t>(start().size()); }
  /// The index of the weight of a start (accept) node; -1 without node weights.
  int32_t start_weight(int32_t node) const;
  int32_t accept_weight(int32_t node) const;
  /// Start and accept nodes, ascending.
  std::span<const int32_t> start() const { return arrays_.start; }
  std::span<const int32_t> accept() const { return arrays_.accept; }
  bool is_start(int32_t node) const;
  bool is_accept(int32_t node) const;

  std::span<const int32_t> src() const {
    return base_ ? (change_.is_reversed ? base_->dst() : base_->src()) : arrays().src;
  }
  std::span<const int32_t> dst() const {
    return base_ ? (change_.is_reversed ? base_->src() : base_->dst()) : arrays().dst;
  }
  std::span<const int32_t> label(Side side) const {
    if (base_) return base_->label(side == Side::input ? change_.ilabel : change_.olabel);
    const Arrays& a = arrays();
    return side == Side::input || a.olabel.empty() ? a.ilabel : a.olabel;
  }
  std::span<const int32_t> ilabel() const { return label(Side::input); }
  std::span<const int32_t> olabel() const { return label(Side::output); }
  const Arrays& arrays() const;
  const SymbolTables& symbols() const { return arrays_.symbols; }

  /// Whether every arc has the same label on both sides.
  bool is_acceptor() const;
  /// Whether an arc has the label kPhi or kRho.
  bool has_special_labels(Side side) const;
  bool is_acyclic() const { return order().is_acyclic(); }

  const Adjacency& in() const;
  const Adjacency& out() const;
  /// The number of arcs that enter each node.
  const Column& num_in() const;
  const LabelIndex& index(Side side) const;
  /// The topology with its arcs in the order of `index(side).arc`; null if they are in it already.
  const std::shared_ptr<const Topology>& sorted(Side side) const;
  const Order& order() const;
  /// The value in a memo slot, computed by `make` at the first call. T must be the same in every
  /// call for a slot.
  template <class T, class Make>
  const T& memo(Memo which, const Make& make) const {
    Lazy<std::shared_ptr<const void>>& slot = derived().memos[static_cast<size_t>(which)];
    return *static_cast<const T*>(
        slot.get([&] { return std::make_shared<const T>(make()); }).get());
  }

  /// For the only owner of a topology: whether the arrays may be edited because nothing was derived
  /// from them yet; the arrays for editing; and the arrays moved out of the topology.
  bool is_pristine() const { return !dense_ && !base_ && !derived_once_.is_done(); }
  Arrays& pristine() { return arrays_; }
  Arrays release() &&;

 private:
  template <class T>
  struct Lazy {
    ForkSafeOnce once;
    T value;
    template <class Make>
    const T& get(Make make) {
      once.call([&] {
        const DeferredInterrupts deferred;
        value = make();
      });
      return value;
    }
  };
  struct Derived {
    Lazy<Adjacency> in, out;
    Lazy<Column> num_in;
    Lazy<LabelIndex> index[2];
    Lazy<std::shared_ptr<const Topology>> sorted[2];
    Lazy<Order> order;
    Lazy<std::shared_ptr<const void>> memos[static_cast<size_t>(Memo::count)];
    Lazy<bool> is_acceptor;
    Lazy<bool> has_special_labels[2];
    /// Equal pointers mark topologies that same_structure() found to be equal.
    std::shared_ptr<const int> structure;
  };
  Derived& derived() const;
  friend bool same_structure(const Topology& a, const Topology& b);

  mutable Arrays arrays_;
  std::optional<Dense> dense_;
  std::shared_ptr<const Topology> base_;
  Change change_;
  mutable ForkSafeOnce arrays_once_;
  mutable ForkSafeOnce derived_once_;
  mutable std::unique_ptr<Derived> derived_;
};

using TopologyPtr = std::shared_ptr<const Topology>;

/// Two nodes and an epsilon arc between them: the topology of all scores.
const TopologyPtr& scalar_topology();

/// Throws if there is a cycle, and names a node on it.
void require_acyclic(std::string_view op, const Topology& topology);

/// Whether both have the same nodes, starts, accepts and arcs in the same order, and both or
/// neither have node weights.
bool same_structure(const Topology& a, const Topology& b);

}  // namespace arcgrad
