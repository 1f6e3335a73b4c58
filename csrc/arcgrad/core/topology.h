#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "arcgrad/runtime/buffer.h"
#include "arcgrad/runtime/fork_safe_once.h"

namespace arcgrad {

/// The label that consumes or emits nothing.
inline constexpr int32_t kEpsilon = -1;

/// The input or the output side of an arc.
enum class Side : uint8_t { input, output };

/// Throws unless `count` fits the int32 ids of nodes and arcs.
void require_size(std::string_view op, std::string_view what, int64_t count);

/// The arcs of each node: node n has the slots [offset[n], offset[n + 1]).
struct Adjacency {
  Column offset;
  /// Arc of each slot, ascending within a node; empty if slot k is arc k.
  Column arcs;
  /// The node at the far end of each slot's arc.
  std::span<const int32_t> node;
  Column own_node;

  int32_t arc(int32_t slot) const { return arcs.empty() ? slot : arcs[slot]; }
};

/// The arcs leaving each node by ascending label, so that a label is found by bisection.
struct LabelIndex {
  Column offset, label, arc, dst;
};

/// An order of the nodes in which arcs go forward, as far as cycles allow.
struct Order {
  /// Node at each position; empty if position p is node p.
  std::vector<int32_t> nodes;
  /// Strongly connected component c is at positions [component[c], component[c + 1]); empty if the
  /// graph is acyclic, and then every node is a component of its own.
  std::vector<int32_t> component;

  bool is_acyclic() const { return component.empty(); }
  int32_t node(int32_t position) const { return nodes.empty() ? position : nodes[position]; }
};

/// What a topology is made of.
struct Arrays {
  int32_t num_nodes = 0;
  /// Ascending node ids.
  Column start, accept;
  /// One entry per arc. `olabel` is empty if every arc has equal labels.
  Column src, dst, ilabel, olabel;
};

class Topology;

/// Values that other parts of the library derive from a topology.
enum class Memo : uint8_t { connected, has_dead_ends, trellis_by_input, trellis_by_output, count };

/// Nodes, arcs and labels, without weights. Immutable once shared, and safe to read from many
/// threads: what is derived from it is computed on first need.
class Topology {
 public:
  explicit Topology(Arrays arrays);
  /// `frames` + 1 nodes in a row, joined by one arc per label: arc t * labels + c goes from t to
  /// t + 1 with label c. Known by its shape; the arrays are made only if asked for.
  Topology(int32_t frames, int32_t labels);
  /// The arcs of another topology, turned round and with other labels, whose columns it shares.
  struct Change {
    bool is_reversed = false;
    /// The sides of the other topology that the labels come from.
    Side ilabel = Side::input, olabel = Side::output;
  };
  Topology(std::shared_ptr<const Topology> base, Change change);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  struct Dense {
    int32_t frames, labels;
  };
  /// The shape of a dense linear topology.
  const std::optional<Dense>& dense() const { return dense_; }

  int32_t num_nodes() const { return dense_ ? dense_->frames + 1 : arrays_.num_nodes; }
  int32_t num_arcs() const {
    if (dense_) return dense_->frames * dense_->labels;
    return base_ ? base_->num_arcs() : static_cast<int32_t>(arrays_.src.size());
  }
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

  /// Whether every arc has the same label on both sides.
  bool is_acceptor() const;
  bool is_acyclic() const { return order().is_acyclic(); }

  const Adjacency& in() const;
  const Adjacency& out() const;
  /// How many arcs enter each node.
  const Column& num_in() const;
  const LabelIndex& index(Side side) const;
  /// The topology with arc k the arc `index(side).arc[k]`; null if that is arc k everywhere.
  const std::shared_ptr<const Topology>& sorted(Side side) const;
  const Order& order() const;
  /// The value of a memo, which `make` computes on first use. T is the same in every call for it.
  template <class T, class Make>
  const T& memo(Memo which, const Make& make) const {
    auto& [once, value] = derived().memos[static_cast<size_t>(which)];
    once.call([&] { value = std::make_shared<const T>(make()); });
    return *static_cast<const T*>(value.get());
  }

  /// For the only owner of a topology: whether nothing was derived from the arrays yet, the arrays
  /// to edit if so, and the arrays taken out if not.
  bool is_pristine() const { return !dense_ && !base_ && !derived_; }
  Arrays& pristine() { return arrays_; }
  Arrays release() &&;

 private:
  template <class T>
  struct Lazy {
    ForkSafeOnce once;
    T value;
    template <class Make>
    const T& get(Make make) {
      once.call([&] { value = make(); });
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
    /// Shared by topologies that were found to have the same structure.
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

/// Two nodes joined by one epsilon arc, shared by all scores.
const TopologyPtr& scalar_topology();

/// Throws unless there is no cycle, and names a node that lies on one.
void require_acyclic(std::string_view op, const Topology& topology);

/// Whether both have the same nodes, starts, accepts and arcs in the same order.
bool same_structure(const Topology& a, const Topology& b);

}  // namespace arcgrad
