#include "arcgrad/algorithms/resolve_failures.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <numeric>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/compose_topologies.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/interruptible_memo.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/thresholds.h"

// There are two forms. The full form has an arc for each node and each label that it matches: it is
// the composition with a loop for each label. An n-gram model of H histories and V words has H V
// arcs, although most words back off from most histories.
//
// The sparse form keeps the failure arcs as epsilon arcs. The nodes that back off to node n, its
// children, and n itself form a sequence. An arc of n with label c may be taken after n, and after
// all children that do not match c. The sum over those is a sum over the intervals between the
// children that match c, which the nodes of a binary tree over the sequence cover. So the arc is
// copied to each of these tree nodes:
//
//     mass(n)         the root of the tree: n and mass(g) + failure arc for all children g
//     piece(n, i, j)  a node of the tree: the same for a part of the sequence
//     rest(n, c)      if c is matched below a child that does not match c itself: the paths that
//                     look for c at n
//
// Each path of the original corresponds to one path of the result, so no score is counted twice,
// and nothing is subtracted. Children that match many labels come last: the intervals are then
// long. Time and size: O(a log k) for the a arcs of children that match a label of their parent,
// with k children; with failure arcs in long rows, each arc counts once per row that it is below.

namespace arcgrad {
namespace {

/// A topology and the maps of its arcs to those of the original.
struct Resolved {
  TopologyPtr topology;
  std::vector<ArcMap> maps;
  int32_t inner_begin = 0, inner_end = 0;
};

/// The labels of a side, ascending, or all below `num_labels` if there are rest arcs.
Column all_labels(const Topology& topology, const Failures& failures, Side side,
                  int32_t num_labels) {
  const auto label = topology.label(side);
  Column out;
  if (failures.has_rest()) {
    out.resize(static_cast<size_t>(num_labels));
    std::iota(out.begin(), out.end(), 0);
  } else {
    for (const int32_t l : label)
      if (l >= 0) out.push_back(l);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  }
  return out;
}

class SparseForm {
 public:
  SparseForm(const char* op, const Topology& topology, Side side, const Failures& failures,
             const Column& labels)
      : op_(op),
        topology_(topology),
        failures_(failures),
        labels_(labels),
        outer_(topology.label(side == Side::input ? Side::output : Side::input)),
        mass_(static_cast<size_t>(topology.num_nodes())),
        end_(mass_.size(), -1),
        children_(mass_.size()),
        marks_(mass_.size()) {
    out_.num_nodes = topology.num_nodes();
    out_.start.assign(topology.start().begin(), topology.start().end());
    out_.accept.assign(topology.accept().begin(), topology.accept().end());
    for (const int32_t n : children_first()) expand(n);
    inner_end_ = out_.num_nodes;
    for (int32_t n = 0; n < topology.num_nodes(); ++n) add_silent(n);
    while (!open_ends_.empty()) expand_end();
    std::sort(out_.accept.begin(), out_.accept.end());
    require_size(op, "arcs", std::ssize(out_.src));
    if (!topology.is_acceptor()) {
      out_.olabel = std::move(outer_labels_);
      if (side == Side::output) std::swap(out_.ilabel, out_.olabel);
    }
  }

  Resolved release() && {
    std::vector<ArcMap> maps{ArcMap::gather(std::move(map_))};
    return {std::make_shared<const Topology>(std::move(out_)), std::move(maps),
            topology_.num_nodes(), inner_end_};
  }
  size_t num_arcs() const { return out_.src.size(); }

 private:
  /// An arc of a node that matches a label.
  struct MatchingArc {
    int32_t label, arc, dst;
  };
  /// A label that paths from a node do not look for at its parent, because the node matches it
  /// (source -1), or for which only those from `source` do.
  struct Mark {
    int32_t label, child, source;
    friend auto operator<=>(const Mark&, const Mark&) = default;
  };

  std::vector<int32_t> children_first() {
    std::vector<int32_t> open(mass_.size()), order;
    for (int32_t n = 0; n < topology_.num_nodes(); ++n)
      if (const int32_t p = failures_.parent(n); p >= 0) children_[p].push_back(n);
    for (int32_t n = 0; n < topology_.num_nodes(); ++n) {
      open[n] = static_cast<int32_t>(children_[n].size());
      if (open[n] == 0) order.push_back(n);
    }
    for (size_t k = 0; k < order.size(); ++k)
      if (const int32_t p = failures_.parent(order[k]); p >= 0 && --open[p] == 0)
        order.push_back(p);
    return order;
  }

  /// The arcs of a node that match labels, ascending by label.
  void read_entries(int32_t node) {
    entries_.clear();
    const LabelIndex& index = failures_.index();
    const Failures::ArcSlots at = failures_.slots(node);
    const auto add = [&](int32_t slot, int32_t label) {
      entries_.push_back({label, index.arc[slot], index.dst[slot]});
    };
    if (at.rest == at.failure) {
      for (int32_t k = at.label; k < at.end; ++k) add(k, index.label[k]);
      return;
    }
    for (const int32_t l : labels_) failures_.match(node, l, [&](int32_t slot) { add(slot, l); });
  }

  bool matches_above(int32_t node, int32_t label) const {
    const int32_t parent = failures_.parent(node);
    return parent >= 0 && failures_.match(parent, label, [](int32_t) {});
  }

  void expand(int32_t node) {
    poll_();
    require_size(op_, "arcs", std::ssize(out_.src));
    read_entries(node);
    std::vector<int32_t> children = std::move(children_[node]);
    if (children.empty()) {
      mass_[node] = node;
      for (const MatchingArc& e : entries_) add(node, e.dst, e.arc, e.label);
    } else {
      expand_parent(node, children);
    }
    if (failures_.parent(node) < 0) return;
    std::vector<Mark>& own = marks_[node];
    for (size_t k = 0; k < entries_.size(); ++k)
      if (k == 0 || entries_[k].label != entries_[k - 1].label)
        own.push_back({entries_[k].label, node, -1});
  }

  void expand_parent(int32_t node, std::vector<int32_t>& children) {
    std::ranges::stable_sort(children, {}, [&](int32_t g) { return marks_[g].size(); });
    tree_.reset(node, children);
    std::vector<Mark> marks;
    for (size_t i = 0; i < children.size(); ++i) {
      for (Mark mark : marks_[children[i]]) {
        mark.child = static_cast<int32_t>(i);
        marks.push_back(mark);
      }
      marks_[children[i]] = {};
    }
    interruptible_sort(marks);
    // The tree nodes in use must be known before they are built, so labels are visited twice.
    for_labels(node, marks, [&](auto, std::span<const Mark> excluded) {
      tree_.cover(excluded, [&](int32_t piece) { tree_.use(piece); });
    });
    const bool has_parent = failures_.parent(node) >= 0;
    bool needs_mass = has_parent;
    for (const MatchingArc& e : entries_) needs_mass |= !is_marked(marks, e.label);
    if (needs_mass) tree_.use(tree_.root());
    for (int32_t piece = tree_.size(); piece-- > 1;) {
      if (!tree_.is_used(piece)) continue;
      if (tree_.is_first(piece)) {
        tree_.id[piece] = node;
        continue;
      }
      tree_.id[piece] = new_node();
      if (tree_.is_leaf(piece)) {
        const int32_t g = tree_.child(piece);
        add(mass_[g], tree_.id[piece], failures_.arc(g), kEpsilon);
      } else {
        attach(tree_.left(piece), tree_.id[piece]);
        attach(tree_.right(piece), tree_.id[piece]);
      }
    }
    if (needs_mass) mass_[node] = tree_.id[tree_.root()];
    for (const MatchingArc& e : entries_)
      if (!is_marked(marks, e.label)) add(mass_[node], e.dst, e.arc, e.label);
    for_labels(
        node, marks, [&](std::span<const MatchingArc> entries, std::span<const Mark> excluded) {
          std::vector<int32_t> pieces;
          tree_.cover(excluded, [&](int32_t piece) { pieces.push_back(tree_.id[piece]); });
          const bool has_sources =
              std::ranges::any_of(excluded, [](const Mark& m) { return m.source >= 0; });
          if (!entries.empty() && !has_sources && (entries.size() == 1 || pieces.size() == 1)) {
            for (const MatchingArc& e : entries)
              for (const int32_t piece : pieces) add(piece, e.dst, e.arc, e.label);
            return;
          }
          const int32_t rest = new_node();
          for (const int32_t piece : pieces) add(piece, rest, -1, kEpsilon);
          for (const Mark& m : excluded)
            if (m.source >= 0) add(m.source, rest, failures_.arc(children[m.child]), kEpsilon);
          for (const MatchingArc& e : entries) add(rest, e.dst, e.arc, e.label);
          if (entries.empty()) marks_[node].push_back({excluded[0].label, node, rest});
        });
  }

  static bool is_marked(const std::vector<Mark>& marks, int32_t label) {
    return std::ranges::binary_search(marks, label, {}, &Mark::label);
  }

  /// Calls `visit(entries, marks)` for the labels of marks that the node or a node above matches.
  template <class Visit>
  void for_labels(int32_t node, const std::vector<Mark>& marks, const Visit& visit) {
    auto entry = entries_.begin();
    for (auto mark = marks.begin(); mark != marks.end();) {
      const int32_t label = mark->label;
      const auto last =
          std::find_if(mark, marks.end(), [&](const Mark& m) { return m.label != label; });
      poll_(kMarkWork * (last - mark));
      while (entry != entries_.end() && entry->label < label) ++entry;
      const auto first = entry;
      while (entry != entries_.end() && entry->label == label) ++entry;
      if (first != entry || matches_above(node, label))
        visit(std::span<const MatchingArc>(first, entry), std::span<const Mark>(mark, last));
      mark = last;
    }
  }

  /// Adds a part of the sequence to a tree node, by way of the tree nodes in use.
  void attach(int32_t piece, int32_t to) {
    if (tree_.is_empty(piece)) return;
    if (tree_.is_used(piece) || tree_.is_first(piece)) {
      add(tree_.is_first(piece) ? tree_.node() : tree_.id[piece], to, -1, kEpsilon);
    } else if (tree_.is_leaf(piece)) {
      add(mass_[tree_.child(piece)], to, failures_.arc(tree_.child(piece)), kEpsilon);
    } else {
      attach(tree_.left(piece), to);
      attach(tree_.right(piece), to);
    }
  }

  /// The epsilon arcs of a node, and the failure arc as it is taken at the end of strings.
  void add_silent(int32_t node) {
    const LabelIndex& index = failures_.index();
    const Failures::ArcSlots at = failures_.slots(node);
    for (int32_t k = at.epsilon; k < at.label; ++k) add(node, index.dst[k], index.arc[k], kEpsilon);
    if (!failures_.ends(node) && failures_.can_end(node))
      add(node, end(failures_.parent(node)), failures_.arc(node), kEpsilon);
  }

  /// The copy of a node that is only reached at the end of strings.
  int32_t end(int32_t node) {
    if (end_[node] < 0) {
      end_[node] = new_node();
      open_ends_.push_back(node);
    }
    return end_[node];
  }

  void expand_end() {
    const int32_t node = open_ends_.back();
    open_ends_.pop_back();
    if (!failures_.ends(node)) {
      add(end_[node], end(failures_.parent(node)), failures_.arc(node), kEpsilon);
      return;
    }
    if (topology_.is_accept(node)) out_.accept.push_back(end_[node]);
    const LabelIndex& index = failures_.index();
    const Failures::ArcSlots at = failures_.slots(node);
    for (int32_t k = at.epsilon; k < at.label; ++k)
      if (failures_.ends(index.dst[k])) {
        const int32_t to = end(index.dst[k]);
        add(end_[node], to, index.arc[k], kEpsilon);
      }
  }

  int32_t new_node() {
    require_size(op_, "nodes", int64_t{out_.num_nodes} + 1);
    return out_.num_nodes++;
  }

  /// `arc` is the arc whose weight the new one has, or -1.
  void add(int32_t src, int32_t dst, int32_t arc, int32_t label) {
    poll_();
    out_.src.push_back(src);
    out_.dst.push_back(dst);
    out_.ilabel.push_back(label);
    map_.push_back(arc);
    if (topology_.is_acceptor()) return;
    const int32_t outer = arc < 0 ? kEpsilon : outer_[arc];
    outer_labels_.push_back(resolved_label(outer, label));
  }

  /// The binary tree over a node and its children: piece 1 is the root, and pieces 2 p and 2 p + 1
  /// are the halves of piece p.
  class Tree {
   public:
    std::vector<int32_t> id;  // the nodes of pieces in use

    void reset(int32_t node, const std::vector<int32_t>& children) {
      node_ = node;
      children_ = &children;
      count_ = static_cast<int32_t>(children.size()) + 1;
      width_ = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(count_)));
      id.assign(static_cast<size_t>(size()), kUnused);
    }
    int32_t size() const { return 2 * width_; }
    int32_t root() const { return narrow(1); }
    int32_t node() const { return node_; }
    int32_t left(int32_t piece) const { return narrow(2 * piece); }
    int32_t right(int32_t piece) const { return narrow(2 * piece + 1); }
    bool is_leaf(int32_t piece) const { return piece >= width_; }
    bool is_first(int32_t piece) const { return piece == width_; }
    bool is_empty(int32_t piece) const { return first(piece) >= count_; }
    int32_t child(int32_t leaf) const { return (*children_)[leaf - width_ - 1]; }
    void use(int32_t piece) { id[piece] = kUsed; }
    bool is_used(int32_t piece) const { return id[piece] != kUnused; }

    /// Calls `visit(piece)` for the pieces that cover the sequence without the marked children.
    template <class Marks, class Visit>
    void cover(const Marks& marks, const Visit& visit) const {
      int32_t begin = 0;
      for (const auto& mark : marks) {
        cover_interval(begin, mark.child + 1, visit);
        begin = mark.child + 2;
      }
      if (begin < count_) cover_interval(begin, width_, visit);
    }

   private:
    static constexpr int32_t kUnused = -2, kUsed = -1;

    template <class Visit>
    void cover_interval(int32_t begin, int32_t end, const Visit& visit) const {
      for (begin += width_, end += width_; begin < end; begin /= 2, end /= 2) {
        if (begin % 2 == 1) visit_piece(begin++, visit);
        if (end % 2 == 1) visit_piece(--end, visit);
      }
    }
    template <class Visit>
    void visit_piece(int32_t piece, const Visit& visit) const {
      if (!is_empty(piece)) visit(narrow(piece));
    }
    int32_t first(int32_t piece) const {
      while (piece < width_) piece *= 2;
      return piece - width_;
    }
    /// The piece itself, or its left part if the right one is empty.
    int32_t narrow(int32_t piece) const {
      while (piece < width_ && first(2 * piece + 1) >= count_) piece *= 2;
      return piece;
    }

    int32_t node_ = 0, count_ = 0, width_ = 0;
    const std::vector<int32_t>* children_ = nullptr;
  };

  /// The work of a mark, in steps of poll_.
  static constexpr int64_t kMarkWork = 8;

  const char* op_;
  const Topology& topology_;
  const Failures& failures_;
  const Column& labels_;
  std::span<const int32_t> outer_;
  /// The node that all paths pass which look for an unmarked label at a node or above.
  std::vector<int32_t> mass_;
  std::vector<int32_t> end_, open_ends_;
  std::vector<std::vector<int32_t>> children_;
  std::vector<std::vector<Mark>> marks_;
  std::vector<MatchingArc> entries_;
  Tree tree_;
  int32_t inner_end_ = 0;
  Arrays out_;
  Column outer_labels_, map_;
  InterruptPoll poll_;
};

Resolved full_form(const char* op, const Topology& topology, Side side, const Column& labels) {
  Column zeros(labels.size(), 0);
  const Topology loops(Arrays{1, {0}, {0}, zeros, zeros, labels, {}});
  Composed composed = side == Side::output ? compose_topologies(op, topology, loops)
                                           : compose_topologies(op, loops, topology);
  Resolved out{std::make_shared<const Topology>(std::move(composed.arrays)),
               std::move(composed.failures)};
  out.maps.push_back(side == Side::output ? composed.first : composed.second);
  return out;
}

/// At most the number of arcs of the full form, and at least it if no labels of a node are equal.
int64_t count_full(const Topology& topology, const Failures& failures, const Column& labels) {
  const int64_t most = std::ssize(labels);
  int64_t sum = 0;
  for (int32_t n = 0; n < topology.num_nodes(); ++n) {
    int64_t own = 0;
    for (int32_t m = n; m >= 0 && own < most; m = failures.parent(m)) {
      const Failures::ArcSlots at = failures.slots(m);
      own += at.rest < at.failure ? most : at.end - at.label;
    }
    sum += std::min(own, most);
  }
  return sum;
}

Resolved resolve(const char* op, const Topology& topology, Side side, const Failures& failures,
                 int32_t num_labels) {
  const Column labels = all_labels(topology, failures, side, num_labels);
  SparseForm sparse(op, topology, side, failures, labels);
  const double percent = 100.0 * static_cast<double>(count_full(topology, failures, labels)) /
                         static_cast<double>(std::max<size_t>(sparse.num_arcs(), 1));
  if (percent <= static_cast<double>(thresholds.full_percent))
    return full_form(op, topology, side, labels);
  return std::move(sparse).release();
}

}  // namespace

ResolvedGraph resolve_failures(const char* op, const Graph& graph, Side side, int32_t num_labels) {
  const Topology& topology = expanded(graph.topology());
  const Failures* failures = find_failures(op, topology, side);
  if (!failures) return {graph};
  const auto make = [&] { return resolve(op, topology, side, *failures, num_labels); };
  const auto record = [&](const Resolved& resolved) {
    std::vector<Moved> inputs;
    for (const ArcMap& map : resolved.maps) inputs.push_back({graph, map});
    return ResolvedGraph{record_moves(op, resolved.topology, std::move(inputs)), resolved.maps,
                         resolved.inner_begin, resolved.inner_end};
  };
  // Rest arcs depend on the number of labels, too.
  if (failures->has_rest()) return record(make());
  const bool by_input = side == Side::input || topology.is_acceptor();
  return record(interruptible_memo<Resolved>(
      topology, by_input ? Memo::resolved_by_input : Memo::resolved_by_output, make));
}

Graph original_gradient(const char* op, const Graph& original, const ResolvedGraph& resolved,
                        const Graph& gradient) {
  std::vector<Moved> inputs;
  for (const ArcMap& map : resolved.maps) inputs.push_back({gradient, map.transpose()});
  return record_moves(op, original.topology_ptr(), std::move(inputs));
}

}  // namespace arcgrad
