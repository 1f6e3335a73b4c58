#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "arcgrad/algorithms/distances.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/appender.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

/// What becomes of an arc. It is left out if the node it leaves is.
enum ArcAction : uint8_t { kKept, kRemoved, kLeftOut };
using Fates = Buffer<ArcAction>;

/// Where an arc goes on to over removed arcs: the nodes that matter, because they accept or kept
/// arcs leave them.
struct EpsilonClosure {
  int32_t num;
  /// Which output of Closures::record() the distance to the first is; the others come after it. -1
  /// if there is no distance, since the arc just ends there.
  int32_t output;
  /// The nodes if they are one or two, else first where in a list for all they are.
  int32_t node[2];

  std::span<const int32_t> nodes(std::span<const int32_t> more) const {
    const auto count = static_cast<size_t>(num);
    return count <= 2 ? std::span(node, count) : more.subspan(node[0], count);
  }
};

/// The distances over removed arcs from some nodes. Each of these has a part of its own in one
/// graph, with a copy of the nodes it reaches, so that one sweep finds them all.
class Closures {
 public:
  Closures(const Graph& graph, const Fates& fates, Semiring semiring)
      : graph_(graph), semiring_(semiring) {
    const Topology& t = graph.topology();
    const auto num_nodes = static_cast<size_t>(t.num_nodes());
    kind_.resize(num_nodes);
    const Adjacency& out = t.out();
    removed_.resize(fates.size() + 1);
    removed_dst_.resize(removed_.size());
    removed_begin_.resize(num_nodes + 1);
    int32_t count = 0;
    for (size_t n = 0; n < num_nodes; ++n) {
      removed_begin_[n] = count;
      for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k) {
        removed_[count] = out.arc(k);
        removed_dst_[count] = out.node[k];
        count += fates[out.arc(k)];
      }
      const int32_t here = count - removed_begin_[n];
      kind_[n] = static_cast<uint8_t>((here > 0 ? kNeeded : 0) |
                                      (here < out.offset[n + 1] - out.offset[n] ? kEnd : 0));
    }
    removed_begin_[num_nodes] = count;
    for (int32_t n : t.accept()) kind_[n] |= kEnd;
    // A cycle may diverge where it leads nowhere, or where nothing leads to it.
    if (!t.is_acyclic() && t.connected().topology) {
      Buffer<uint8_t> is_live(num_nodes, 0);
      for (int32_t n : t.accept()) is_live[n] = t.is_start(n);
      for (int32_t a : t.connected().arcs) is_live[t.src()[a]] = is_live[t.dst()[a]] = 1;
      for (size_t n = 0; n < num_nodes; ++n)
        if (!is_live[n]) kind_[n] = 0;
    }
    // About what one removed arc here and there takes.
    const auto some = static_cast<size_t>(count);
    for (Column* column : {&arrays_.src, &arrays_.dst, &arcs_, &sources_}) column->reserve(some);
    for (Column* column : {&names_, &targets_}) column->reserve(2 * some);
  }

  /// The nodes that removed arcs enter, once for each.
  std::span<const int32_t> removed_dst() const {
    return {removed_dst_.data(), static_cast<size_t>(removed_begin_.back())};
  }
  /// Whether removed arcs leave the node.
  bool is_needed(int32_t node) const { return kind_[node] & kNeeded; }

  /// Where an arc to a node goes on to, if removed arcs leave it.
  EpsilonClosure from(int32_t node) {
    expect(removed_begin_[node]);
    if (EpsilonClosure ways; try_reach(node, ways)) return ways;
    return reach({&node, 1});
  }
  /// The same for several nodes at once, and the output that is the sum over all accept nodes
  /// reached, or -1.
  EpsilonClosure from_all(std::span<const int32_t> nodes, int32_t& empty_string) {
    const size_t first = names_.size();
    const EpsilonClosure reached = reach(nodes);
    const size_t end = names_.size();
    for (size_t i = first; i < end; ++i)
      if (graph_.topology().is_accept(names_[i]))
        link(static_cast<int32_t>(i), static_cast<int32_t>(end), -1);
    empty_string = -1;
    if (!arrays_.dst.empty() && arrays_.dst.back() == static_cast<int32_t>(end)) {
      names_.push_back(-1);
      empty_string = add_target(end);
    }
    return reached;
  }
  /// The nodes of ways that are more than two.
  std::span<const int32_t> more() const { return more_; }

  Graph record() && {
    arrays_.num_nodes = static_cast<int32_t>(names_.size());
    arrays_.ilabel.assign(arcs_.size(), kEpsilon);
    Weights weights = Weights::zeros(static_cast<int64_t>(arcs_.size()), graph_.dtype());
    ArcMap::gather(arcs_).apply(graph_.weights(), weights, 1.0);
    PathScores scores(std::make_shared<Topology>(std::move(arrays_)), weights, sources_,
                      {.op = "remove",
                       .semiring = semiring_,
                       .keep = tracks(graph_),
                       .targets = targets_,
                       .exact_sums = true,
                       .names = names_});
    return record_distances("remove", graph_,
                            {std::move(scores), std::move(arcs_), std::move(targets_)},
                            graph_.dtype());
  }

 private:
  void link(int32_t src, int32_t dst, int32_t arc) {
    arrays_.src.push_back(src);
    arrays_.dst.push_back(dst);
    arcs_.push_back(arc);
  }
  int32_t add_target(size_t at) {
    targets_.push_back(static_cast<int32_t>(at));
    return static_cast<int32_t>(targets_.size()) - 1;
  }

  /// Asks for memory that will be read if the next nodes are those whose removed arcs come next.
  void expect(int32_t k) const {
    constexpr int32_t kFar = 16, kNear = 8;
    const int32_t last = removed_begin_.back() - 1;
    for (int32_t next = k + kFar; next < k + kFar + 2; ++next) {
      const int32_t dst = removed_dst_[std::min(next, last)];
      __builtin_prefetch(&kind_[dst]);
      __builtin_prefetch(&removed_begin_[dst]);
    }
    for (int32_t next = k + kNear; next < k + kNear + 2; ++next) {
      const int32_t after = removed_begin_[removed_dst_[std::min(next, last)]];
      __builtin_prefetch(&removed_[after]);
      __builtin_prefetch(&removed_dst_[after]);
    }
  }
  /// Adds the part of some sources.
  EpsilonClosure reach(std::span<const int32_t> sources) {
    const size_t first = names_.size(), begin = more_.size();
    for (int32_t n : sources) sources_.push_back(find_or_add(n, first));
    for (size_t i = first; i < names_.size(); ++i) {
      if (!is_needed(names_[i])) continue;
      const int32_t end = removed_begin_[names_[i] + 1];
      for (int32_t k = removed_begin_[names_[i]]; k < end; ++k)
        link(static_cast<int32_t>(i), find_or_add(removed_dst_[k], first), removed_[k]);
    }
    require_sizes();
    EpsilonClosure ways{0, static_cast<int32_t>(targets_.size()), {}};
    for (size_t i = first; i < names_.size(); ++i)
      if (kind_[names_[i]] & kEnd) {
        more_.push_back(names_[i]);
        add_target(i);
      }
    const size_t num = more_.size() - begin;
    ways.num = static_cast<int32_t>(num);
    if (num > 2) {
      ways.node[0] = static_cast<int32_t>(begin);
    } else {
      std::copy_n(more_.data() + begin, num, ways.node);
      more_.resize(begin);
    }
    return ways;
  }
  /// Where a node is in the part that begins at `first`.
  int32_t find_or_add(int32_t node, size_t first) {
    // Most parts are small, and then a look at each node is faster than a table of all there are.
    constexpr size_t kSmall = 16;
    const size_t end = names_.size();
    size_t at = end;
    if (end - first <= kSmall)
      at = static_cast<size_t>(std::find(names_.begin() + first, names_.end(), node) -
                               names_.begin());
    else if (position_[node] >= static_cast<int32_t>(first))
      at = position_[node];
    if (at == end) {
      names_.push_back(node);
      if (end - first == kSmall) {
        position_.resize(kind_.size(), -1);
        for (size_t i = first; i < end; ++i) position_[names_[i]] = static_cast<int32_t>(i);
      }
      if (end - first >= kSmall) position_[node] = static_cast<int32_t>(end);
    }
    return static_cast<int32_t>(at);
  }
  /// The same if a single removed arc leaves the source, and none from where it goes.
  bool try_reach(int32_t source, EpsilonClosure& ways) {
    const int32_t k = removed_begin_[source];
    const int32_t pair[] = {source, removed_dst_[k]};
    if (removed_begin_[source + 1] != k + 1 || is_needed(pair[1])) return false;
    const auto at = static_cast<int32_t>(names_.size());
    sources_.push_back(at);
    link(at, at + 1, removed_[k]);
    ways = {0, static_cast<int32_t>(targets_.size()), {}};
    for (int32_t n : pair) {
      if (kind_[n] & kEnd) {
        ways.node[ways.num++] = n;
        add_target(names_.size());
      }
      names_.push_back(n);
    }
    require_sizes();
    return true;
  }
  void require_sizes() const {
    require_size("remove", "nodes reached over removed arcs",
                 static_cast<int64_t>(names_.size()) + 1);
    require_size("remove", "removed arcs to be followed", static_cast<int64_t>(arcs_.size()));
  }

  const Graph& graph_;
  Semiring semiring_;
  static constexpr uint8_t kNeeded = 1, kEnd = 2;
  Buffer<uint8_t> kind_;  // of each node: whether removed arcs leave it, and whether it matters
  Column removed_, removed_dst_, removed_begin_;  // the removed arcs by the node they leave
  Column more_;
  // The graph of the sweep; `names_` are its nodes and `position_` where one is, if in this part
  // and that is large.
  Arrays arrays_;
  Column position_, arcs_, names_, sources_, targets_;
};

/// Where arcs that enter a node go on to, and what stays of the input. A node that nothing enters
/// any more is left out, with its arcs, where that is known when it is its turn: if there are no
/// cycles.
class Renumbering {
 public:
  /// `for_entered(f)` calls `f(arc, ...)` for the arcs that a new start takes over, and `first_id`
  /// is the first id for the nodes that stay.
  template <class ForEntered>
  Renumbering(const Topology& t, std::span<const int32_t> start, int32_t first_id,
              Closures& closures, const ForEntered& for_entered, Fates& fates)
      : is_entered(static_cast<size_t>(t.num_nodes()), t.is_acyclic() ? 0 : 1),
        id(is_entered.size()),
        num_nodes(first_id) {
    const auto dst = t.dst();
    const Adjacency& leaving = t.out();
    const Order& order = t.order();
    Buffer<uint32_t> num_in(t.num_in().begin(), t.num_in().end());
    for (int32_t n : closures.removed_dst()) --num_in[n];
    for_entered([&](int32_t a, int32_t) { ++num_in[dst[a]]; });
    for (int32_t n : start) is_entered[n] = 1;
    Buffer<EpsilonClosure> found;
    found.reserve(closures.removed_dst().size() + 1);
    found.push_back({1, -1, {}});
    Column place(id.size());  // of each node: where in `found` its ways are, or 0
    for (int32_t position = 0; position < t.num_nodes(); ++position) {
      const int32_t n = order.node(position);
      place[n] = 0;
      if (num_in[n] > 0) {
        int32_t num = 1;
        if (closures.is_needed(n)) {
          place[n] = static_cast<int32_t>(found.size());
          found.push_back(closures.from(n));
          num = found.back().num;
          for (int32_t node : found.back().nodes(closures.more())) is_entered[node] = 1;
        } else {
          is_entered[n] = 1;
        }
        num_arcs += static_cast<int64_t>(num_in[n]) * num;
      }
      if (is_entered[n]) [[likely]]
        continue;
      for (int32_t k = leaving.offset[n]; k < leaving.offset[n + 1]; ++k)
        if (ArcAction& fate = fates[leaving.arc(k)]; fate == kKept) {
          --num_in[leaving.node[k]];
          fate = kLeftOut;
        }
    }
    for (size_t n = 0; n < id.size(); ++n) {
      id[n] = num_nodes;
      num_nodes += is_entered[n];
    }
    more_.resize(closures.more().size());
    for (size_t i = 0; i < more_.size(); ++i) more_[i] = id[closures.more()[i]];
    groups_.resize(id.size() / kGroup + 1);
    others_.resize(id.size() + 1);
    int32_t num_others = 0;
    for (size_t n = 0; n < id.size(); ++n) {
      Group& group = groups_[n / kGroup];
      const int32_t shift = id[n] - static_cast<int32_t>(n);
      if (n % kGroup == 0) group = {0, shift, num_others};
      const int32_t is_plain = (place[n] == 0) & (shift == group.shift) ? 1 : 0;
      group.is_plain |= static_cast<uint64_t>(is_plain) << n % kGroup;
      // Overwritten by the next one if it does not count.
      EpsilonClosure& ways = others_[num_others] = found[place[n]];
      num_others += 1 - is_plain;
      if (ways.num > 2) [[unlikely]]
        continue;
      ways.node[0] = id[place[n] == 0 ? static_cast<int32_t>(n) : ways.node[0]];
      ways.node[1] = id[ways.node[1]];
    }
  }

  /// Where arcs to a node go on to, by new ids.
  EpsilonClosure from(int32_t node) const {
    int32_t new_id;
    return is_plain(node, new_id) ? EpsilonClosure{1, -1, {new_id, 0}} : other(node);
  }
  /// The nodes of ways that are more than two.
  std::span<const int32_t> more() const { return more_; }
  /// Asks for the nodes of ways if they are there.
  void expect(const EpsilonClosure& ways) const {
    __builtin_prefetch(more_.data() + (ways.node[0] & -static_cast<int32_t>(ways.num > 2)));
  }
  /// Whether arcs to a node just end there and its new id is found at once, and that id.
  bool is_plain(int32_t node, int32_t& new_id) const {
    const Group& group = groups_[static_cast<size_t>(node) / kGroup];
    new_id = node + group.shift;
    return group.is_plain >> static_cast<size_t>(node) % kGroup & 1;
  }
  /// Where arcs to any other node go on to.
  const EpsilonClosure& other(int32_t node) const {
    const Group& group = groups_[static_cast<size_t>(node) / kGroup];
    const uint64_t before = (uint64_t{1} << static_cast<size_t>(node) % kGroup) - 1;
    return others_[group.first_other + std::popcount(~group.is_plain & before)];
  }

  Buffer<uint8_t> is_entered;
  /// What nodes that stay are called.
  Column id;
  int32_t num_nodes;
  int64_t num_arcs = 0;

 private:
  /// Some nodes in a row. Those that no removed arc leaves have ids that move by the same, if none
  /// before them is left out, and are told by one bit; the ways of the others are in `others_`. So
  /// most arcs find where they go in little memory, which stays in the caches.
  static constexpr size_t kGroup = 64;
  struct Group {
    uint64_t is_plain;
    int32_t shift, first_other;
  };
  Buffer<Group> groups_;
  Buffer<EpsilonClosure> others_;
  Column more_;
};

/// The arcs of the result: each has the labels and weight of a kept arc of the input, or is an
/// epsilon arc, plus up to two distances over removed arcs, one before it and one after it.
class Result {
 public:
  Result(const Topology& from, const Fates& fates, const Renumbering& routes, int64_t num_arcs)
      : src_(from.src()),
        dst_(from.dst()),
        ilabel_(from.ilabel()),
        olabel_(from.olabel()),
        num_columns_(from.is_acceptor() ? kOlabel : kOlabel + 1),
        fates_(fates),
        routes_(routes),
        to_(make_columns(num_arcs)) {}

  /// Adds arcs from the new node, over distance `first`, for an arc of the input and its ways on.
  /// Such arcs come before all others.
  void enter(int32_t arc, int32_t first) {
    const EpsilonClosure ways = routes_.from(dst_[arc]);
    int32_t last = ways.output;
    for (int32_t node : ways.nodes(routes_.more())) {
      add({0, node, ilabel_[arc], arc, last++, olabel_[arc]});
      before.push_back(first);
    }
  }
  /// Adds an epsilon arc from the new node to `dst`, for a distance alone.
  void add_epsilon(int32_t dst, int32_t distance) {
    add({0, dst, kEpsilon, -1, -1, kEpsilon});
    before.push_back(distance);
  }
  /// Adds arcs for the kept arcs of the input. No more come after that.
  void add_kept() {
    // What one block asks for has come when it is written after the look at the next one.
    Block blocks[2];
    for (size_t begin = 0, i = 0; begin < src_.size(); begin += kBlock, ++i) {
      look_up(begin, blocks[i % 2]);
      if (i > 0) write(blocks[(i - 1) % 2]);
      if (begin + kBlock >= src_.size()) write(blocks[i % 2]);
    }
    to_.finish();
    if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();
  }

  Arrays arrays;
  /// Of each arc, the kept arc it is made of and the distances before and after it, or -1. Only the
  /// first ones have distances before them.
  Column kept, before, after;

 private:
  enum { kSrc, kDst, kIlabel, kKeptArc, kAfter, kOlabel };

  std::vector<Column*> make_columns(int64_t num_arcs) {
    require_size("remove", "arcs", num_arcs + 2);
    std::vector<Column*> columns{&arrays.src, &arrays.dst, &arrays.ilabel,
                                 &kept,       &after,      &arrays.olabel};
    columns.resize(num_columns_);
    for (Column* column : columns) column->resize(static_cast<size_t>(num_arcs) + 2);
    return columns;
  }
  void add(const std::array<int32_t, kOlabel + 1>& arc) {
    to_.prepare(1);
    for (size_t c = 0; c < num_columns_; ++c) *to_.next(c) = arc[c];
    to_.advance(1);
  }

  struct Pair {
    int32_t first, second;
  };
  /// What becomes of some arcs of the input.
  static constexpr size_t kBlock = 128;
  struct Block {
    size_t begin, count;
    /// How many each becomes, where the first two of them go, and the distance after the first.
    int32_t num[kBlock];
    Pair nodes[kBlock];  // if only one, the second does not count
    int32_t output[kBlock];
    /// Those that do not just end somewhere.
    size_t num_others;
    int32_t other[kBlock];
    const EpsilonClosure* ways[kBlock];
  };
  // What there is of each arc, and so where the next one goes, is found without a jump, which would
  // often be taken by surprise. What does not count is overwritten by what comes after.
  void look_up(size_t begin, Block& block) const {
    block.begin = begin;
    block.count = std::min(kBlock, src_.size() - begin);
    const int32_t* const dst = dst_.data() + begin;
    const ArcAction* const fate = fates_.data() + begin;
    size_t num_others = 0;
    for (size_t i = 0; i < block.count; ++i) {
      const int32_t is_kept = fate[i] == kKept ? 1 : 0;
      int32_t id;
      const int32_t is_plain = routes_.is_plain(dst[i], id) ? 1 : 0;
      block.nodes[i] = {id, id};
      block.num[i] = is_plain & is_kept;
      block.output[i] = -1;
      block.other[num_others] = static_cast<int32_t>(i);
      num_others += static_cast<size_t>((is_plain ^ 1) & is_kept);
    }
    block.num_others = num_others;
    for (size_t k = 0; k < num_others; ++k) {
      block.ways[k] = &routes_.other(dst[block.other[k]]);
      __builtin_prefetch(block.ways[k]);
    }
  }
  void write(Block& block) {
    size_t several[kBlock], num_several = 0;
    for (size_t k = 0; k < block.num_others; ++k) {
      const int32_t i = block.other[k];
      const EpsilonClosure& ways = *block.ways[k];
      block.num[i] = ways.num;
      block.nodes[i] = {ways.node[0], ways.node[1]};
      block.output[i] = ways.output;
      several[num_several] = k;
      num_several += ways.num > 2 ? 1 : 0;
      routes_.expect(ways);
    }
    size_t total = 0;
    for (size_t i = 0; i < block.count; ++i) total += static_cast<size_t>(block.num[i]);
    to_.prepare(total);
    int32_t* to[kOlabel + 1];
    for (size_t c = 0; c < num_columns_; ++c) to[c] = to_.next(c);
    const auto put = [&to](size_t column, size_t at, int32_t first, int32_t second) {
      to[column][at] = first;
      to[column][at + 1] = second;
    };
    size_t place[kBlock], at = 0;
    for (size_t i = 0; i < block.count; ++i) {
      const size_t arc = block.begin + i;
      const int32_t src = routes_.id[src_[arc]], kept_arc = static_cast<int32_t>(arc);
      put(kSrc, at, src, src);
      put(kDst, at, block.nodes[i].first, block.nodes[i].second);
      put(kIlabel, at, ilabel_[arc], ilabel_[arc]);
      put(kKeptArc, at, kept_arc, kept_arc);
      put(kAfter, at, block.output[i], block.output[i] + 1);
      place[i] = at;
      at += static_cast<size_t>(block.num[i]);
    }
    if (num_columns_ > kOlabel)
      for (size_t i = 0; i < block.count; ++i)
        put(kOlabel, place[i], olabel_[block.begin + i], olabel_[block.begin + i]);
    for (size_t k : std::span(several, num_several)) {
      const int32_t i = block.other[k];
      const std::span<const int32_t> nodes = block.ways[k]->nodes(routes_.more());
      for (size_t c = 0; c < num_columns_; ++c)
        std::fill_n(to[c] + place[i], nodes.size(), to[c][place[i]]);
      std::copy(nodes.begin(), nodes.end(), to[kDst] + place[i]);
      std::iota(to[kAfter] + place[i], to[kAfter] + place[i] + nodes.size(), block.output[i]);
    }
    to_.advance(total);
  }

  std::span<const int32_t> src_, dst_, ilabel_, olabel_;  // of the input
  size_t num_columns_;  // one less if the labels are the same on both sides
  const Fates& fates_;
  const Renumbering& routes_;
  Appender to_;
};

}  // namespace

Graph remove(const Graph& graph, int32_t ilabel, std::optional<int32_t> olabel, Semiring semiring) {
  const int32_t output = olabel.value_or(ilabel);
  require(ilabel >= kEpsilon && output >= kEpsilon, "remove",
          "the labels must be 0 or more, or epsilon (-1), but they are ", ilabel, " and ", output);
  const Topology& t = graph.topology();
  const auto dst = t.dst(), in = t.ilabel(), out = t.olabel();
  require_scorable("remove", graph.weights());
  const auto num_arcs = static_cast<size_t>(t.num_arcs());
  Fates fates(num_arcs);
  uint8_t any = kKept;
  for (size_t a = 0; a < num_arcs; ++a)
    any |= fates[a] = static_cast<ArcAction>((in[a] == ilabel) & (out[a] == output));
  if (!any) return connect(graph);
  Closures closures(graph, fates, semiring);

  // A start from which removed arcs leave cannot stay one: their weight needs an arc to sit on. The
  // node that stands for all such starts comes first, and so do its arcs, so that a chain stays in
  // order.
  Column merged, start;
  for (int32_t n : t.start()) (closures.is_needed(n) ? merged : start).push_back(n);
  EpsilonClosure entered{};
  int32_t empty_string = -1;
  if (!merged.empty()) entered = closures.from_all(merged, empty_string);
  const Adjacency& leaving = t.out();
  // Calls f(arc, distance before it) for the kept arcs that leave what the starts reach.
  const auto for_entered = [&](const auto& f) {
    int32_t before = entered.output;
    for (int32_t node : entered.nodes(closures.more())) {
      for (int32_t k = leaving.offset[node]; k < leaving.offset[node + 1]; ++k)
        if (const int32_t a = leaving.arc(k); fates[a] != kRemoved) f(a, before);
      ++before;
    }
  };
  const Renumbering routes(t, start, merged.empty() ? 0 : 1, closures, for_entered, fates);
  Result result(t, fates, routes, routes.num_arcs + (empty_string >= 0 ? 1 : 0));
  Arrays& arrays = result.arrays;
  arrays.num_nodes = routes.num_nodes;
  if (!merged.empty()) arrays.start.push_back(0);
  for (int32_t n : start) arrays.start.push_back(routes.id[n]);
  for (int32_t n : t.accept())
    if (routes.is_entered[n]) arrays.accept.push_back(routes.id[n]);
  for_entered([&](int32_t a, int32_t before) { result.enter(a, before); });
  if (empty_string >= 0) {
    result.add_epsilon(arrays.num_nodes, empty_string);
    arrays.accept.push_back(arrays.num_nodes++);
  }
  result.add_kept();
  const Graph distances = std::move(closures).record();
  std::vector<Moved> moved{{graph, ArcMap::gather(std::move(result.kept))},
                           {distances, ArcMap::gather(std::move(result.after))}};
  if (!merged.empty()) moved.push_back({distances, ArcMap::gather(std::move(result.before))});
  const Graph removed = record_moves("remove", std::move(arrays), std::move(moved));
  // Without cycles, what is left of a graph without dead ends has none.
  return t.is_acyclic() && !t.has_dead_ends() ? removed : connect(removed);
}

}  // namespace arcgrad
