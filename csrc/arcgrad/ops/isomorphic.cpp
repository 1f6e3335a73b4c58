#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "arcgrad/ops.h"
#include "arcgrad/ops/weight_key.h"
#include "arcgrad/runtime/error.h"

// The nodes of both graphs are colored together until nodes of one color have alike arcs to every
// color. Arcs that then tell no two nodes of a color apart are dropped, and the pieces that stay
// connected are matched on their own. Only a piece that this leaves whole needs a guess: one of its
// nodes is paired with each node of the same color in turn.

namespace arcgrad {
namespace {

struct Arc {
  int32_t src, dst, type;
};

/// A part of a graph, with the colors that a renumbering has to keep.
struct Piece {
  std::vector<int32_t> color;
  std::vector<Arc> arcs;
};

/// Two pieces side by side: nodes from `split` on belong to the second.
struct Pair {
  Pair(const Piece& first, const Piece& second)
      : split(static_cast<int32_t>(first.color.size())), color(first.color), arcs(first.arcs) {
    color.insert(color.end(), second.color.begin(), second.color.end());
    arcs.reserve(first.arcs.size() + second.arcs.size());
    for (const Arc& arc : second.arcs) arcs.push_back({arc.src + split, arc.dst + split, arc.type});
  }
  int32_t num_nodes() const { return static_cast<int32_t>(color.size()); }

  int32_t split;
  std::vector<int32_t> color;
  std::vector<Arc> arcs;
};

/// The neighbors of each node: node n has the entries [offset[n], offset[n + 1]). An entry is a
/// key, made of the type and the direction of the arc, above the neighbor.
struct Neighbors {
  explicit Neighbors(const Pair& pair)
      : offset(static_cast<size_t>(pair.num_nodes()) + 1, 0), entries(2 * pair.arcs.size()) {
    for (const Arc& arc : pair.arcs) {
      ++offset[arc.src + 1];
      ++offset[arc.dst + 1];
    }
    std::partial_sum(offset.begin(), offset.end(), offset.begin());
    std::vector<int64_t> next(offset.begin(), offset.end() - 1);
    for (const Arc& arc : pair.arcs) {
      const uint64_t key = 2 * static_cast<uint64_t>(arc.type);
      entries[next[arc.src]++] = key << 32U | static_cast<uint32_t>(arc.dst);
      entries[next[arc.dst]++] = (key + 1) << 32U | static_cast<uint32_t>(arc.src);
    }
  }

  std::vector<int64_t> offset;
  std::vector<uint64_t> entries;
};

/// A coloring of the nodes of a pair. It is balanced while every color has as many nodes in the
/// first piece as in the second; without that no renumbering keeps the colors.
class Coloring {
 public:
  explicit Coloring(const Pair& pair)
      : split_(pair.split),
        nodes_(pair.color.size()),
        place_(pair.color.size()),
        color_(pair.color.size()),
        count_(pair.color.size()) {
    std::iota(nodes_.begin(), nodes_.end(), 0);
    std::ranges::stable_sort(nodes_, {}, [&](int32_t n) { return pair.color[n]; });
    for (int32_t p = 0; p < pair.num_nodes(); ++p) {
      const int32_t n = nodes_[p];
      if (p == 0 || pair.color[nodes_[p - 1]] != pair.color[n]) add_color(p, 0);
      place_[n] = p;
      color_[n] = num_colors() - 1;
      ++size_.back();
    }
    for (int32_t c = 0; c < num_colors(); ++c) check_balance(c);
  }

  bool is_balanced() const { return is_balanced_; }
  int32_t num_colors() const { return static_cast<int32_t>(begin_.size()); }
  int32_t color(int32_t node) const { return color_[node]; }
  /// The nodes of a color, half of them in each piece.
  std::span<const int32_t> nodes(int32_t color) const {
    return std::span(nodes_).subspan(begin_[color], size_[color]);
  }

  /// Divides colors until nodes of one color have alike arcs to every color, or out of balance.
  void refine(const Neighbors& neighbors) {
    for (int32_t c = 0; c < num_colors(); ++c) enqueue(c);
    work_off(neighbors);
  }

  /// Gives two nodes of one color a color of their own and refines a coloring that was refined.
  void pair_up(const Neighbors& neighbors, int32_t first, int32_t second) {
    for (const int32_t n : {first, second}) touch(n, 1);
    divide(color_[first]);
    work_off(neighbors);
  }

 private:
  int32_t add_color(int32_t begin, int32_t size) {
    begin_.push_back(begin);
    size_.push_back(size);
    touched_.push_back(0);
    is_queued_.push_back(false);
    return num_colors() - 1;
  }

  void check_balance(int32_t color) {
    const auto first = std::ranges::count_if(nodes(color), [&](int32_t n) { return n < split_; });
    is_balanced_ &= 2 * first == size_[color];
  }

  void enqueue(int32_t color) {
    if (is_queued_[color]) return;
    is_queued_[color] = true;
    queue_.push_back(color);
  }

  /// Notes the count of a node and moves it to the end of its color.
  void touch(int32_t node, int32_t count) {
    const int32_t c = color_[node];
    const int32_t from = place_[node], to = begin_[c] + size_[c] - ++touched_[c];
    std::swap(nodes_[from], nodes_[to]);
    place_[nodes_[from]] = from;
    place_[node] = to;
    count_[node] = count;
  }

  /// Divides a color by the counts of its nodes, which are 0 unless touched.
  void divide(int32_t color) {
    const int32_t begin = begin_[color], end = begin + size_[color];
    int32_t p = end - std::exchange(touched_[color], 0);
    std::sort(nodes_.begin() + p, nodes_.begin() + end,
              [&](int32_t a, int32_t b) { return count_[a] < count_[b]; });
    const int32_t first_part = num_colors();
    int32_t largest = color;
    size_[color] = p - begin;
    while (p < end) {
      const int32_t from = p, count = count_[nodes_[p]];
      while (p < end && count_[nodes_[p]] == count) ++p;
      // The least count keeps the old color. Its balance follows from that of the others.
      const int32_t part = from == begin ? color : add_color(from, 0);
      size_[part] = p - from;
      for (int32_t q = from; q < p; ++q) {
        place_[nodes_[q]] = q;
        color_[nodes_[q]] = part;
      }
      if (part != color) check_balance(part);
      if (size_[part] > size_[largest]) largest = part;
    }
    // Counts into the largest part follow from those into the others and into the whole, unless
    // the whole is still waiting. This is what bounds the work by O(m log n) entries.
    if (is_queued_[color]) largest = color;
    if (largest != color) enqueue(color);
    for (int32_t part = first_part; part < num_colors(); ++part)
      if (part != largest) enqueue(part);
  }

  void work_off(const Neighbors& neighbors) {
    std::vector<uint64_t> entries;
    std::vector<int32_t> colors;
    while (is_balanced_ && !queue_.empty()) {
      const int32_t splitter = queue_.back();
      queue_.pop_back();
      is_queued_[splitter] = false;
      entries.clear();
      for (const int32_t n : nodes(splitter))
        entries.insert(entries.end(), neighbors.entries.begin() + neighbors.offset[n],
                       neighbors.entries.begin() + neighbors.offset[n + 1]);
      std::sort(entries.begin(), entries.end());
      for (size_t i = 0; i < entries.size();) {
        const uint64_t key = entries[i] >> 32U;
        colors.clear();
        while (i < entries.size() && entries[i] >> 32U == key) {
          const size_t from = i;
          while (i < entries.size() && entries[i] == entries[from]) ++i;
          const auto n = static_cast<int32_t>(entries[from] & 0xffffffffU);
          if (touched_[color_[n]] == 0) colors.push_back(color_[n]);
          touch(n, static_cast<int32_t>(i - from));
        }
        for (const int32_t c : colors) divide(c);
      }
    }
  }

  int32_t split_;
  bool is_balanced_ = true;
  /// The nodes, those of one color together, and the place of each node among them.
  std::vector<int32_t> nodes_, place_;
  /// Per node: its color, and how many arcs of one kind join it to the color at work.
  std::vector<int32_t> color_, count_;
  /// Per color: where its nodes begin, how many there are, and how many at their end are touched.
  std::vector<int32_t> begin_, size_, touched_;
  std::vector<bool> is_queued_;
  std::vector<int32_t> queue_;
};

/// The pieces of both sides that have the same colors, so that any of them may match any other.
struct Group {
  std::vector<Piece> first, second;
};

/// An arc by the colors at its ends.
struct ColoredArc {
  int32_t src_color, dst_color, type, src, dst;
  auto operator<=>(const ColoredArc&) const = default;
};

/// Whether these arcs, sorted, join every pair of nodes equally often.
bool joins_all(std::span<const ColoredArc> arcs, int64_t num_pairs) {
  const auto count = static_cast<int64_t>(arcs.size());
  if (count % num_pairs != 0) return false;
  const auto times = static_cast<size_t>(count / num_pairs);
  for (size_t i = 1; i < arcs.size(); ++i)
    if ((arcs[i] == arcs[i - 1]) != (i % times != 0)) return false;
  return true;
}

/// The arcs that matter to a refined coloring; none if they show that the pieces do not match.
std::optional<std::vector<Arc>> telling_arcs(const Pair& pair, const Coloring& coloring) {
  std::vector<ColoredArc> sorted;
  sorted.reserve(pair.arcs.size());
  for (const auto [src, dst, type] : pair.arcs)
    if (src != dst) sorted.push_back({coloring.color(src), coloring.color(dst), type, src, dst});
  std::sort(sorted.begin(), sorted.end());
  std::vector<Arc> out;
  for (auto from = sorted.begin(); from != sorted.end();) {
    const auto end = std::find_if(from, sorted.end(), [&](const ColoredArc& arc) {
      return arc.type != from->type || arc.dst_color != from->dst_color ||
             arc.src_color != from->src_color;
    });
    const auto middle =
        std::find_if(from, end, [&](const ColoredArc& arc) { return arc.src >= pair.split; });
    const auto src_size = static_cast<int64_t>(coloring.nodes(from->src_color).size() / 2);
    const auto dst_size = static_cast<int64_t>(coloring.nodes(from->dst_color).size() / 2);
    const int64_t num_pairs =
        src_size * (from->src_color == from->dst_color ? src_size - 1 : dst_size);
    const bool all = joins_all({from, middle}, num_pairs);
    if (all != joins_all({middle, end}, num_pairs)) return std::nullopt;
    if (!all)
      std::for_each(from, end,
                    [&](const ColoredArc& arc) { out.push_back({arc.src, arc.dst, arc.type}); });
    from = end;
  }
  return out;
}

/// The pieces of a pair that remain to be matched; none if they show that there is no match.
std::optional<std::vector<Group>> decompose(const Pair& pair, const Coloring& coloring) {
  // Where every color has one node in each piece, the colors are the match.
  if (coloring.num_colors() == pair.split) return std::vector<Group>{};
  const auto arcs = telling_arcs(pair, coloring);
  if (!arcs) return std::nullopt;

  const int32_t num_nodes = pair.num_nodes();
  std::vector<int32_t> parent(num_nodes);
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t n) {
    while (parent[n] != n) n = parent[n] = parent[parent[n]];
    return n;
  };
  for (const Arc& arc : *arcs) {
    const int32_t a = root(arc.src), b = root(arc.dst);
    parent[std::max(a, b)] = std::min(a, b);
  }

  // The root of a piece is its first node, so pieces of the first side come first.
  std::vector<Piece> pieces;
  std::vector<int32_t> piece_at(num_nodes), place(num_nodes);
  size_t num_first = 0;
  for (int32_t n = 0; n < num_nodes; ++n) {
    const int32_t r = root(n);
    if (r == n) {
      if (n < pair.split) ++num_first;
      piece_at[n] = static_cast<int32_t>(pieces.size());
      pieces.emplace_back();
    }
    Piece& piece = pieces[piece_at[r]];
    place[n] = static_cast<int32_t>(piece.color.size());
    piece.color.push_back(coloring.color(n));
  }
  for (const Arc& arc : *arcs)
    pieces[piece_at[root(arc.src)]].arcs.push_back({place[arc.src], place[arc.dst], arc.type});

  std::map<std::vector<int32_t>, Group> groups;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].color.size() == 1) continue;
    std::vector<int32_t> colors = pieces[i].color;
    std::sort(colors.begin(), colors.end());
    Group& group = groups[std::move(colors)];
    (i < num_first ? group.first : group.second).push_back(std::move(pieces[i]));
  }
  std::vector<Group> out;
  for (auto& [colors, group] : groups) {
    if (group.first.size() != group.second.size()) return std::nullopt;
    // The same goes for pieces.
    if (std::ranges::adjacent_find(colors) != colors.end()) out.push_back(std::move(group));
  }
  return out;
}

/// The search for a match of two pieces. It asks for matches of smaller pieces on the way.
class Search {
 public:
  enum class Status : uint8_t { matched, mismatched, open };

  /// `is_refined` says that the colors of the pieces are those of one refined coloring.
  Search(const Piece& first, const Piece& second, bool is_refined)
      : pair_(first, second), coloring_(pair_) {
    if (!is_refined) coloring_.refine(neighbors_.emplace(pair_));
    take_apart(coloring_);
    if (is_whole()) choose();
  }

  /// Goes on until the answer is known or depends on next_first() and next_second().
  Status step() {
    for (;;) {
      if (is_possible_ && groups_.empty()) return Status::matched;
      if (is_possible_ && candidate_ < groups_.back().second.size()) return Status::open;
      if (guesses_.empty()) return Status::mismatched;
      if (!neighbors_) neighbors_.emplace(pair_);
      Coloring coloring = coloring_;
      coloring.pair_up(*neighbors_, chosen_, guesses_.back());
      guesses_.pop_back();
      take_apart(coloring);
    }
  }

  const Piece& next_first() const { return groups_.back().first.back(); }
  const Piece& next_second() const { return groups_.back().second[candidate_]; }

  /// Takes the answer for them. To match is an equivalence, so a match never has to be undone.
  void answer(bool matched) {
    if (!matched) {
      ++candidate_;
      return;
    }
    Group& group = groups_.back();
    group.first.pop_back();
    std::swap(group.second[candidate_], group.second.back());
    group.second.pop_back();
    candidate_ = 0;
    if (group.first.empty()) groups_.pop_back();
  }

 private:
  void take_apart(const Coloring& coloring) {
    auto groups = coloring.is_balanced() ? decompose(pair_, coloring) : std::nullopt;
    is_possible_ = groups.has_value();
    groups_ = std::move(groups).value_or(std::vector<Group>{});
    candidate_ = 0;
  }

  /// Whether taking apart changed nothing.
  bool is_whole() const {
    return groups_.size() == 1 && groups_[0].first.size() == 1 &&
           groups_[0].first[0].color.size() == static_cast<size_t>(pair_.split) &&
           2 * groups_[0].first[0].arcs.size() == pair_.arcs.size();
  }

  /// Picks a node of the rarest color that leaves a choice, and what to pair it with.
  void choose() {
    int32_t best = -1;
    for (int32_t c = 0; c < coloring_.num_colors(); ++c) {
      const size_t size = coloring_.nodes(c).size();
      if (size > 2 && (best < 0 || size < coloring_.nodes(best).size())) best = c;
    }
    for (const int32_t n : coloring_.nodes(best)) {
      if (n < pair_.split)
        chosen_ = n;
      else
        guesses_.push_back(n);
    }
    is_possible_ = false;
  }

  Pair pair_;
  Coloring coloring_;
  std::optional<Neighbors> neighbors_;
  /// What remains to be matched, unless the last try failed.
  std::vector<Group> groups_;
  bool is_possible_ = false;
  size_t candidate_ = 0;
  int32_t chosen_ = -1;
  std::vector<int32_t> guesses_;
};

bool match(const Piece& first, const Piece& second) {
  std::vector<std::unique_ptr<Search>> stack;
  stack.push_back(std::make_unique<Search>(first, second, false));
  for (;;) {
    const Search::Status status = stack.back()->step();
    if (status == Search::Status::open) {
      const Search& top = *stack.back();
      stack.push_back(std::make_unique<Search>(top.next_first(), top.next_second(), true));
      continue;
    }
    const bool matched = status == Search::Status::matched;
    stack.pop_back();
    if (stack.empty()) return matched;
    stack.back()->answer(matched);
  }
}

/// What two arcs have to share besides their nodes. A loop is a loop after any renumbering.
struct ArcType {
  int32_t ilabel, olabel;
  bool is_loop;
  uint64_t weight;
  auto operator<=>(const ArcType&) const = default;
};

std::vector<ArcType> arc_types(const Graph& graph) {
  const Topology& topology = graph.topology();
  const auto src = topology.src(), dst = topology.dst();
  const auto ilabel = topology.ilabel(), olabel = topology.olabel();
  const std::vector<double> weights = graph.weights_to_vector();
  std::vector<ArcType> types(weights.size());
  for (size_t a = 0; a < types.size(); ++a)
    types[a] = {ilabel[a], olabel[a], src[a] == dst[a], weight_key(weights[a])};
  return types;
}

/// The whole graph, with its types numbered by their place in `known`.
Piece whole(const Graph& graph, std::span<const ArcType> types, std::span<const ArcType> known) {
  const Topology& topology = graph.topology();
  const auto src = topology.src(), dst = topology.dst();
  Piece out;
  out.color.resize(static_cast<size_t>(topology.num_nodes()));
  for (const int32_t n : topology.start()) out.color[n] += 1;
  for (const int32_t n : topology.accept()) out.color[n] += 2;
  out.arcs.resize(types.size());
  for (size_t a = 0; a < types.size(); ++a) {
    const auto at = std::lower_bound(known.begin(), known.end(), types[a]);
    out.arcs[a] = {src[a], dst[a], static_cast<int32_t>(at - known.begin())};
  }
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
  const std::vector<ArcType> first_types = arc_types(a), second_types = arc_types(b);
  std::vector<ArcType> known = first_types, other = second_types;
  std::sort(known.begin(), known.end());
  std::sort(other.begin(), other.end());
  if (known != other) return false;
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return match(whole(a, first_types, known), whole(b, second_types, known));
}

}  // namespace arcgrad
