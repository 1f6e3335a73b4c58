#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "arcgrad/ops.h"
#include "arcgrad/ops/weight_key.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/hash_index.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Isomorphism by color refinement and backtracking (McKay and Piperno 2014, "Practical graph
// isomorphism, II"). The nodes of both graphs are colored together, and colors are divided until
// nodes of one color have the same arcs, by type, to and from every color; each color must have
// equally many nodes in both graphs. A node that is the only one of its color in its graph is then
// matched, and its arcs need no further check. Without the matched nodes each graph falls apart
// into connected components, which are matched one by one. Isomorphism is transitive, so no match
// of two components is ever undone. If there is one component and no node is matched, one of its
// nodes gets a color of its own, and so does, in turn, each node of the same color in the other
// graph.
//
// Refinement takes O(arcs log nodes) steps of sorting, as in Hopcroft's algorithm. Backtracking is
// rare for automata; the worst case is exponential.

namespace arcgrad {
namespace {

/// An arc; arcs of one type have the same labels and weight.
struct TypedArc {
  int32_t src, dst, type;
};

/// A part of a graph. Only nodes of the same color can be matched.
struct Component {
  std::vector<int32_t> color;
  std::vector<TypedArc> arcs;
};

/// A coloring of the nodes of two components; those of the second have ids from split() on.
class Coloring {
 public:
  Coloring(const Component& first, const Component& second)
      : split_(static_cast<int32_t>(first.color.size())), color_(first.color), arcs_(first.arcs) {
    color_.insert(color_.end(), second.color.begin(), second.color.end());
    for (const auto& [src, dst, type] : second.arcs)
      arcs_.push_back({src + split_, dst + split_, type});
    offset_.resize(color_.size() + 1);
    InterruptPoll poll;
    for (const TypedArc& arc : arcs_) {
      poll();
      ++offset_[arc.src + 1];
      ++offset_[arc.dst + 1];
    }
    std::partial_sum(offset_.begin(), offset_.end(), offset_.begin());
    ends_.resize(2 * arcs_.size());
    std::vector<size_t> next(offset_.begin(), offset_.end() - 1);
    for (const auto& [src, dst, type] : arcs_) {
      poll();
      ends_[next[src]++] = {dst, 2 * int64_t{type}};
      ends_[next[dst]++] = {src, 2 * int64_t{type} + 1};
    }
    std::map<int32_t, std::vector<int32_t>> by_color;
    for (size_t n = 0; n < color_.size(); ++n, poll())
      by_color[color_[n]].push_back(static_cast<int32_t>(n));
    place_.resize(color_.size());
    for (const auto& [color, nodes] : by_color) enqueue(add_color(nodes));
  }

  /// Divides colors until they are stable. False if the components cannot match.
  bool refine() {
    std::vector<End> ends;
    std::vector<Neighbor> neighbors;
    InterruptPoll poll;
    while (is_balanced_ && !queue_.empty()) {
      const int32_t splitter = queue_.back();
      queue_.pop_back();
      is_queued_[splitter] = false;
      ends.clear();
      for (int32_t n : nodes_[splitter])
        ends.insert(ends.end(), ends_.begin() + static_cast<ptrdiff_t>(offset_[n]),
                    ends_.begin() + static_cast<ptrdiff_t>(offset_[n + 1]));
      poll(1 + std::ssize(ends));
      interruptible_sort(ends);
      neighbors.clear();
      for (size_t i = 0, j; i < ends.size(); i = j) {
        for (j = i; j < ends.size() && ends[j].node == ends[i].node; ++j) {
        }
        neighbors.push_back({color_[ends[i].node], std::span(ends).subspan(i, j - i)});
      }
      interruptible_sort(neighbors);
      for (auto from = neighbors.begin(), to = from; from != neighbors.end(); from = to) {
        to = std::find_if(from, neighbors.end(),
                          [&](const Neighbor& n) { return n.color != from->color; });
        divide(from->color, {from, to});
      }
    }
    return is_balanced_;
  }

  int32_t split() const { return split_; }
  int32_t color(int32_t node) const { return color_[node]; }
  /// The nodes of a color, half of them in each component.
  std::span<const int32_t> nodes(int32_t color) const { return nodes_[color]; }
  bool is_matched(int32_t node) const { return nodes_[color_[node]].size() == 2; }

  /// The connected components of both sides without matched nodes.
  std::pair<std::vector<Component>, std::vector<Component>> split_components() const {
    std::vector<Component> components[2];
    std::vector<int32_t> component(color_.size(), -1), local(color_.size()), stack;
    InterruptPoll poll;
    for (int32_t root = 0; root < static_cast<int32_t>(color_.size()); ++root) {
      poll();
      if (component[root] >= 0 || is_matched(root)) continue;
      std::vector<Component>& side = components[root < split_ ? 0 : 1];
      const auto id = static_cast<int32_t>(side.size());
      Component& out = side.emplace_back();
      const auto visit = [&](int32_t n) {
        if (component[n] >= 0 || is_matched(n)) return;
        component[n] = id;
        local[n] = static_cast<int32_t>(out.color.size());
        out.color.push_back(color_[n]);
        stack.push_back(n);
      };
      for (visit(root); !stack.empty();) {
        const int32_t n = stack.back();
        stack.pop_back();
        poll(static_cast<int64_t>(offset_[n + 1] - offset_[n]));
        for (size_t k = offset_[n]; k < offset_[n + 1]; ++k) visit(ends_[k].node);
      }
    }
    for (const auto& [src, dst, type] : arcs_)
      if (!is_matched(src) && !is_matched(dst))
        components[src < split_ ? 0 : 1][component[src]].arcs.push_back(
            {local[src], local[dst], type});
    return {std::move(components[0]), std::move(components[1])};
  }

 private:
  /// The other end of an arc, and the type and direction of the arc.
  struct End {
    int32_t node;
    int64_t key;
    auto operator<=>(const End&) const = default;
  };
  /// A node that arcs of the splitter touch, with these arcs.
  struct Neighbor {
    int32_t color;
    std::span<const End> arcs;

    int32_t node() const { return arcs.front().node; }
    bool is_alike(const Neighbor& other) const {
      return std::ranges::equal(arcs, other.arcs, {}, &End::key, &End::key);
    }
    bool operator<(const Neighbor& other) const {
      if (color != other.color) return color < other.color;
      return std::ranges::lexicographical_compare(arcs, other.arcs, {}, &End::key, &End::key);
    }
  };

  int32_t add_color(std::vector<int32_t> nodes) {
    const auto color = static_cast<int32_t>(nodes_.size());
    size_t in_first = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      color_[nodes[i]] = color;
      place_[nodes[i]] = i;
      in_first += nodes[i] < split_ ? 1 : 0;
    }
    is_balanced_ &= 2 * in_first == nodes.size();
    nodes_.push_back(std::move(nodes));
    is_queued_.push_back(false);
    return color;
  }

  void enqueue(int32_t color) {
    if (is_queued_[color]) return;
    is_queued_[color] = true;
    queue_.push_back(color);
  }

  /// Divides a color by the arcs of its touched nodes, which are sorted by these arcs.
  void divide(int32_t color, std::span<const Neighbor> touched) {
    std::vector<int32_t> parts{color};
    // If all nodes are touched, those that come first keep the color; else the others do.
    bool keeps_color = touched.size() == nodes_[color].size();
    for (size_t i = 0, j; i < touched.size(); i = j) {
      std::vector<int32_t> alike;
      for (j = i; j < touched.size() && touched[j].is_alike(touched[i]); ++j)
        alike.push_back(touched[j].node());
      if (std::exchange(keeps_color, false)) continue;
      for (int32_t n : alike) {
        std::vector<int32_t>& nodes = nodes_[color];
        place_[nodes.back()] = place_[n];
        std::swap(nodes[place_[n]], nodes.back());
        nodes.pop_back();
      }
      parts.push_back(add_color(std::move(alike)));
    }
    // The counts of arcs to one part follow from the counts to the other parts and to the whole, so
    // the largest part need not be queued, unless the whole is still in the queue.
    const auto largest =
        is_queued_[color]
            ? parts.begin()
            : std::ranges::max_element(parts, {}, [&](int32_t c) { return nodes_[c].size(); });
    for (auto part = parts.begin(); part != parts.end(); ++part)
      if (part != largest) enqueue(*part);
  }

  int32_t split_;
  std::vector<int32_t> color_;  // of each node
  std::vector<size_t> place_;   // of each node among those of its color
  std::vector<TypedArc> arcs_;
  std::vector<size_t> offset_;  // node n has the ends from offset_[n] on
  std::vector<End> ends_;
  std::vector<std::vector<int32_t>> nodes_;  // of each color
  std::vector<bool> is_queued_;
  std::vector<int32_t> queue_;  // of splitters
  bool is_balanced_ = true;
};

bool match(const Component& first, const Component& second) {
  poll_interrupt();
  Coloring coloring(first, second);
  if (!coloring.refine()) return false;
  const auto [ours, theirs] = coloring.split_components();
  if (ours.size() != theirs.size()) return false;
  if (ours.size() == 1 && ours[0].color.size() == first.color.size()) {
    // No node is matched: try all matches of a node of the rarest color.
    int32_t rarest = 0;
    for (int32_t n = 0; n < coloring.split(); ++n)
      if (coloring.nodes(coloring.color(n)).size() < coloring.nodes(coloring.color(rarest)).size())
        rarest = n;
    Component chosen = ours[0];
    Component guess = theirs[0];
    const auto mark = std::numeric_limits<int32_t>::max();
    const int32_t color = coloring.color(rarest);
    *std::ranges::find(chosen.color, color) = mark;
    for (int32_t& candidate : guess.color) {
      if (candidate != color) continue;
      candidate = mark;
      if (match(chosen, guess)) return true;
      candidate = color;
    }
    return false;
  }
  const auto key = [](const Component& component) {
    std::vector<int32_t> colors = component.color;
    std::ranges::sort(colors);
    return colors;
  };
  std::map<std::vector<int32_t>, std::vector<const Component*>> unmatched;
  for (const Component& component : theirs) unmatched[key(component)].push_back(&component);
  for (const Component& component : ours) {
    std::vector<const Component*>& candidates = unmatched[key(component)];
    const auto found = std::ranges::find_if(
        candidates, [&](const Component* other) { return match(component, *other); });
    if (found == candidates.end()) return false;
    std::swap(*found, candidates.back());
    candidates.pop_back();
  }
  return true;
}

/// What two arcs must have in common besides their nodes.
struct ArcType {
  int32_t ilabel, olabel;
  uint64_t weight;
  bool operator==(const ArcType&) const = default;
  uint64_t hash() const { return mix_hash(mix_hash(mix_hash(0, ilabel), olabel), weight); }
};

std::vector<ArcType> arc_types(const Graph& graph) {
  const auto ilabel = graph.topology().ilabel(), olabel = graph.topology().olabel();
  const std::vector<double> weights = graph.weights_to_vector();
  std::vector<ArcType> types(weights.size());
  for (size_t a = 0; a < types.size(); ++a)
    types[a] = {ilabel[a], olabel[a], weight_key(weights[a])};
  return types;
}

/// What two nodes must have in common besides their arcs.
struct NodeType {
  bool is_start = false, is_accept = false;
  uint64_t start_weight = 0, accept_weight = 0;
  bool operator==(const NodeType&) const = default;
  uint64_t hash() const {
    return mix_hash(mix_hash(2 * uint64_t{is_start} + is_accept, start_weight), accept_weight);
  }
};

std::vector<NodeType> node_types(const Graph& graph) {
  const Topology& topology = graph.topology();
  std::vector<NodeType> types(static_cast<size_t>(topology.num_nodes()));
  const std::vector<double> start = graph.start_weights(), accept = graph.accept_weights();
  for (size_t i = 0; i < start.size(); ++i) {
    NodeType& type = types[topology.start()[i]];
    type.is_start = true;
    type.start_weight = weight_key(start[i]);
  }
  for (size_t i = 0; i < accept.size(); ++i) {
    NodeType& type = types[topology.accept()[i]];
    type.is_accept = true;
    type.accept_weight = weight_key(accept[i]);
  }
  return types;
}

/// The number of the type of each node or arc, in both graphs.
using Numbers = std::pair<std::vector<int32_t>, std::vector<int32_t>>;

/// Numbers the types, if both graphs have each type equally often.
template <class Type>
std::optional<Numbers> number_types(const std::vector<Type>& first,
                                    const std::vector<Type>& second) {
  if (first.size() != second.size()) return std::nullopt;
  std::vector<const Type*> known;
  std::vector<int32_t> surplus;  // of the first graph, by type
  HashIndex index;
  Numbers out;
  InterruptPoll poll;
  const auto find = [&](const Type& type, uint32_t hash) {
    return index.find(hash, [&](int32_t number) { return *known[number] == type; });
  };
  for (const Type& type : first) {
    poll();
    const auto hash = static_cast<uint32_t>(type.hash() >> 32);
    int32_t number = find(type, hash);
    if (number < 0) {
      index.add(hash, number = static_cast<int32_t>(known.size()));
      known.push_back(&type);
      surplus.push_back(0);
    }
    ++surplus[number];
    out.first.push_back(number);
  }
  for (const Type& type : second) {
    poll();
    const int32_t number = find(type, static_cast<uint32_t>(type.hash() >> 32));
    if (number < 0 || surplus[number]-- == 0) return std::nullopt;
    out.second.push_back(number);
  }
  return out;
}

/// The whole graph as one component, given the numbers of the types of its nodes and arcs.
Component whole(const Topology& topology, std::vector<int32_t> nodes,
                const std::vector<int32_t>& arcs) {
  const auto src = topology.src(), dst = topology.dst();
  Component out{std::move(nodes), std::vector<TypedArc>(arcs.size())};
  for (size_t a = 0; a < arcs.size(); ++a) out.arcs[a] = {src[a], dst[a], arcs[a]};
  return out;
}

}  // namespace

bool isomorphic(const Graph& a, const Graph& b) {
  const Topology &first = a.topology(), &second = b.topology();
  if (first.num_nodes() != second.num_nodes() || first.num_arcs() != second.num_arcs() ||
      first.start().size() != second.start().size() ||
      first.accept().size() != second.accept().size())
    return false;
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max() / 2;
  require(first.num_nodes() <= kMost, "isomorphic", "the graphs must have at most ", kMost,
          " nodes each, but they have ", first.num_nodes());
  auto nodes = number_types(node_types(a), node_types(b));
  if (!nodes) return false;
  const auto arcs = number_types(arc_types(a), arc_types(b));
  return arcs && match(whole(first, std::move(nodes->first), arcs->first),
                       whole(second, std::move(nodes->second), arcs->second));
}

}  // namespace arcgrad
