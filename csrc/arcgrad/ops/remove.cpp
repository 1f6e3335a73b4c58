#include <algorithm>
#include <functional>
#include <utility>

#include "arcgrad/distances.h"
#include "arcgrad/error.h"
#include "arcgrad/ops.h"

namespace arcgrad {
namespace {

/// The distances over removed arcs from some nodes. Each of these has a part of its own in one
/// graph, with a copy of the nodes it reaches, so that one sweep finds them all.
class Closures {
 public:
  Closures(const Graph& graph, Buffer<uint8_t> is_removed, Semiring semiring)
      : graph_(graph), semiring_(semiring), is_removed_(std::move(is_removed)) {
    const Topology& t = graph.topology();
    const auto num_nodes = static_cast<size_t>(t.num_nodes());
    kind_.resize(num_nodes);
    position_.resize(num_nodes, -1);
    from_.resize(num_nodes, -1);
    const Adjacency& out = t.out();
    removed_.resize(is_removed_.size() + 1);
    removed_dst_.resize(removed_.size());
    removed_begin_.resize(num_nodes + 1);
    int32_t count = 0;
    for (size_t n = 0; n < num_nodes; ++n) {
      removed_begin_[n] = count;
      for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k) {
        removed_[count] = out.arc(k);
        removed_dst_[count] = out.node[k];
        count += is_removed_[out.arc(k)];
      }
      const int32_t here = count - removed_begin_[n];
      kind_[n] = static_cast<uint8_t>((here > 0 ? kNeeded : 0) |
                                      (here < out.offset[n + 1] - out.offset[n] ? kEnd : 0));
    }
    removed_begin_[num_nodes] = count;
    for (int32_t n : t.accept()) kind_[n] |= kEnd;
    ways_ = {{1, -1}, {0, -1}};
    // About what one removed arc here and there takes.
    const auto some = static_cast<size_t>(count);
    for (Column* column : {&arrays_.src, &arrays_.dst, &arcs_, &sources_}) column->reserve(some);
    for (Column* column : {&names_, &targets_}) column->reserve(2 * some);
    ways_.reserve(3 * some);
  }

  const Buffer<uint8_t>& removed() const { return is_removed_; }
  bool is_removed(int32_t arc) const { return is_removed_[arc]; }
  /// Whether removed arcs leave the node.
  bool is_needed(int32_t node) const { return kind_[node] & kNeeded; }

  /// A node that can be reached over removed arcs, and which output of record() its distance is.
  struct Way {
    int32_t node, output;
  };
  /// Where in ways() the nodes are that matter, because they accept or kept arcs leave them: in the
  /// place of a node is their number, and they come after it.
  int32_t from(int32_t node) {
    int32_t& begin = from_[node];
    if (begin < 0) {
      begin = static_cast<int32_t>(ways_.size());
      ways_.emplace_back();
      reach({&node, 1});
      const auto end = static_cast<int32_t>(ways_.size());
      ways_[begin] = {end - begin - 1, -1};
    }
    return begin;
  }
  /// The same from several nodes at once, and the output that is the sum over all accept nodes
  /// reached, or -1.
  std::vector<Way> from_all(std::span<const int32_t> nodes, int32_t& empty_string) {
    const size_t first = names_.size(), before = ways_.size();
    reach(nodes);
    const std::vector<Way> reached(ways_.begin() + static_cast<ptrdiff_t>(before), ways_.end());
    ways_.resize(before);
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
  std::span<const Way> ways() const { return ways_; }
  /// Gives the nodes of ways() the ids of the result. Two can be read wherever ways begin.
  void rename(const Column& id) {
    for (size_t i = 0; i < ways_.size();)
      for (size_t end = i + static_cast<size_t>(ways_[i].node); i++ < end;)
        ways_[i].node = id[ways_[i].node];
    ways_.insert(ways_.end(), 2, {0, -1});
  }
  /// Asks for memory that from() will read.
  void expect(int32_t node) const {
    for (int32_t k = removed_begin_[node]; k < removed_begin_[node + 1]; ++k)
      __builtin_prefetch(&kind_[removed_dst_[k]]);
  }

  Graph record() && {
    arrays_.num_nodes = static_cast<int32_t>(names_.size());
    arrays_.ilabel.assign(arcs_.size(), kEpsilon);
    Weights weights = Weights::zeros(static_cast<int64_t>(arcs_.size()), graph_.dtype());
    ArcMap::gather(arcs_).apply(graph_.weights(), weights, 1.0);
    Sweep sweep(std::make_shared<Topology>(std::move(arrays_)), weights, sources_,
                {.op = "remove",
                 .semiring = semiring_,
                 .keep = tracks(graph_),
                 .targets = targets_,
                 .exact_sums = true,
                 .names = names_});
    std::vector<Distances> parts;
    parts.push_back({std::move(sweep), std::move(arcs_), std::move(targets_)});
    return record_distances("remove", graph_, std::move(parts), graph_.dtype());
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

  /// Adds the part of some sources, and what they reach to `ways_`.
  void reach(std::span<const int32_t> sources) {
    const size_t first = names_.size();
    if (sources.size() == 1 && try_reach(sources[0])) return;
    const auto visit = [&](int32_t n) {
      int32_t& at = position_[n];
      if (at < static_cast<int32_t>(first)) {
        at = static_cast<int32_t>(names_.size());
        names_.push_back(n);
      }
      return at;
    };
    for (int32_t n : sources) sources_.push_back(visit(n));
    for (size_t i = first; i < names_.size(); ++i)
      for (int32_t k = removed_begin_[names_[i]]; k < removed_begin_[names_[i] + 1]; ++k)
        link(static_cast<int32_t>(i), visit(removed_dst_[k]), removed_[k]);
    require_sizes();
    for (size_t i = first; i < names_.size(); ++i)
      if (kind_[names_[i]] & kEnd) ways_.push_back({names_[i], add_target(i)});
  }
  /// The same if a single removed arc leaves the source, and none from where it goes.
  bool try_reach(int32_t source) {
    const int32_t k = removed_begin_[source];
    const int32_t pair[] = {source, removed_dst_[k]};
    if (removed_begin_[source + 1] != k + 1 || is_needed(pair[1])) return false;
    const auto at = static_cast<int32_t>(names_.size());
    sources_.push_back(at);
    link(at, at + 1, removed_[k]);
    for (int32_t n : pair) {
      if (kind_[n] & kEnd) ways_.push_back({n, add_target(names_.size())});
      names_.push_back(n);
    }
    require_sizes();
    return true;
  }
  void require_sizes() const {
    require_size("remove", "nodes reached over removed arcs",
                 static_cast<int64_t>(names_.size()) + 1);
    require_size("remove", "removed arcs to be followed", static_cast<int64_t>(arcs_.size()));
    require_size("remove", "ways over removed arcs", static_cast<int64_t>(ways_.size()) + 2);
  }

  const Graph& graph_;
  Semiring semiring_;
  static constexpr uint8_t kNeeded = 1, kEnd = 2;
  Buffer<uint8_t> is_removed_;
  Buffer<uint8_t> kind_;  // of each node: whether removed arcs leave it, and whether it matters
  Column removed_, removed_dst_, removed_begin_;  // the removed arcs by the node they leave
  Buffer<Way> ways_;
  Column from_;  // of each node: where its ways are, or -1
  // The graph of the sweep; `names_` are its nodes and `position_` where one is, if in this part.
  Arrays arrays_;
  Column position_, arcs_, names_, sources_, targets_;
};

/// Where arcs that enter a node go on to, and what stays of the input. A node that nothing enters
/// any more is left out, with its arcs, where that is known when it is its turn: if there are no
/// cycles.
struct Routes {
  /// `for_entered(f)` calls `f(arc, ...)` for the arcs that a new start takes over, and `first_id`
  /// is the first id for the nodes that stay.
  template <class ForEntered>
  Routes(const Topology& t, std::span<const int32_t> start, int32_t first_id, Closures& closures,
         const ForEntered& for_entered)
      : is_entered(static_cast<size_t>(t.num_nodes()), t.is_acyclic() ? 0 : 1),
        is_left_out(closures.removed()),
        id(is_entered.size()),
        next(is_entered.size()),
        num_nodes(first_id) {
    constexpr int32_t kAhead = 48;
    const auto dst = t.dst();
    const Adjacency& leaving = t.out();
    const Order& order = t.order();
    Buffer<uint32_t> num_in(is_entered.size(), 0);
    for (size_t a = 0; a < dst.size(); ++a) num_in[dst[a]] += 1 - is_left_out[a];
    for_entered([&](int32_t a, int32_t) { ++num_in[dst[a]]; });
    for (int32_t n : start) is_entered[n] = 1;
    for (int32_t position = 0; position < t.num_nodes(); ++position) {
      const int32_t n = order.node(position);
      closures.expect(order.node(std::min(position + kAhead, t.num_nodes() - 1)));
      next[n] = 0;
      if (num_in[n] > 0) {
        int32_t num = 1;
        if (closures.is_needed(n)) {
          const int32_t begin = closures.from(n);
          next[n] = ~begin;
          num = closures.ways()[begin].node;
          for (int32_t i = 1; i <= num; ++i) is_entered[closures.ways()[begin + i].node] = 1;
        } else {
          is_entered[n] = 1;
        }
        num_arcs += static_cast<int64_t>(num_in[n]) * num;
      }
      if (is_entered[n]) [[likely]]
        continue;
      for (int32_t k = leaving.offset[n]; k < leaving.offset[n + 1]; ++k)
        if (uint8_t& arc = is_left_out[leaving.arc(k)]; !arc) {
          --num_in[leaving.node[k]];
          arc = 1;
        }
    }
    for (size_t n = 0; n < id.size(); ++n) {
      id[n] = num_nodes;
      if (next[n] == 0) next[n] = num_nodes;
      num_nodes += is_entered[n];
    }
    closures.rename(id);
  }

  Buffer<uint8_t> is_entered;
  /// Of each arc, whether it is removed or leaves a node that does not stay.
  Buffer<uint8_t> is_left_out;
  /// What nodes that stay are called.
  Column id;
  /// Where an arc to a node goes on to: the id of a node, or ~i for what is at i in ways().
  Column next;
  int32_t num_nodes;
  int64_t num_arcs = 0;
};

/// The arcs of the result: each has the labels and weight of a kept arc of the input, or is an
/// epsilon arc, plus up to two distances over removed arcs, one before it and one after it.
class Result {
 public:
  Result(const Topology& from, const Routes& routes, std::span<const Closures::Way> ways,
         int64_t num_arcs)
      : src_(from.src()), dst_(from.dst()), ilabel_(from.ilabel()), routes_(routes), ways_(ways) {
    require_size("remove", "arcs", num_arcs + 2);
    if (!from.is_acceptor()) olabel_ = from.olabel();
    // Two more, so that arcs can be written before it is known whether they count.
    const auto count = static_cast<size_t>(num_arcs) + 2;
    for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &kept, &after})
      column->resize(count);
    if (!olabel_.empty()) arrays.olabel.resize(count);
  }

  /// Adds arcs from the new node, over distance `first`, for an arc of the input and its ways on.
  /// Such arcs come before all others.
  void enter(int32_t arc, int32_t first) {
    const int32_t next = routes_.next[dst_[arc]];
    const auto add = [&](int32_t dst, int32_t last) {
      write(num_arcs_, arc, dst, last);
      arrays.src[num_arcs_++] = 0;
      before.push_back(first);
    };
    if (next >= 0) return add(next, -1);
    const Closures::Way* const ways = &ways_[~next];
    for (int32_t k = 1; k <= ways[0].node; ++k) add(ways[k].node, ways[k].output);
  }
  /// Adds an epsilon arc from the new node to `dst`, for a distance alone.
  void add_epsilon(int32_t dst, int32_t distance) {
    arrays.src[num_arcs_] = 0;
    arrays.dst[num_arcs_] = dst;
    arrays.ilabel[num_arcs_] = kEpsilon;
    if (!olabel_.empty()) arrays.olabel[num_arcs_] = kEpsilon;
    kept[num_arcs_] = after[num_arcs_] = -1;
    before.push_back(distance);
    ++num_arcs_;
  }
  void add_kept() {
    // What there is of each arc, and so where the next one goes, is found without a jump, which
    // would often be taken by surprise. What does not count is overwritten by what comes after.
    constexpr size_t kBlock = 256, kAhead = 32;
    size_t place[kBlock], several[kBlock];
    const size_t num_arcs = src_.size();
    const int32_t* const nexts = routes_.next.data();
    // The first ways are those of an arc that stays as it is.
    const auto find_ways = [ways = ways_.data()](int32_t next) {
      return ways + (~next & (next >> 31));
    };
    for (size_t begin = 0; begin < num_arcs; begin += kBlock) {
      const size_t count = std::min(kBlock, num_arcs - begin);
      const int32_t* const dst = dst_.data() + begin;
      const uint8_t* const left_out = routes_.is_left_out.data() + begin;
      const size_t ahead = begin + count + 2 * kAhead <= num_arcs ? kAhead : 0;
      int32_t *to_dst = arrays.dst.data(), *to_after = after.data();
      size_t at = num_arcs_, num_several = 0;
      for (size_t i = 0; i < count; ++i) {
        __builtin_prefetch(&nexts[dst[i + 2 * ahead]]);
        __builtin_prefetch(find_ways(nexts[dst[i + ahead]]));
        const int32_t next = nexts[dst[i]];
        const Closures::Way* const ways = find_ways(next);
        place[i] = at;
        to_dst[at] = next ^ ((next ^ ways[1].node) & (next >> 31));
        to_after[at] = ways[1].output;
        to_dst[at + 1] = ways[2].node;
        to_after[at + 1] = ways[2].output;
        const int32_t num = ways[0].node & (static_cast<int32_t>(left_out[i]) - 1);
        several[num_several] = i;
        num_several += num > 2 ? 1 : 0;
        at += static_cast<size_t>(num);
      }
      num_arcs_ = at;
      const auto copy = [&](std::span<const int32_t> from, Column& to, auto map) {
        const int32_t* const in = from.data() + begin;
        int32_t* const out = to.data();
        for (size_t i = 0; i < count; ++i) out[place[i]] = out[place[i] + 1] = map(in[i]);
      };
      copy(src_, arrays.src, [id = routes_.id.data()](int32_t node) { return id[node]; });
      copy(ilabel_, arrays.ilabel, std::identity());
      if (!olabel_.empty()) copy(olabel_, arrays.olabel, std::identity());
      int32_t* const to_kept = kept.data();
      for (size_t i = 0; i < count; ++i)
        to_kept[place[i]] = to_kept[place[i] + 1] = static_cast<int32_t>(begin + i);
      for (size_t i : std::span(several, num_several)) {
        const Closures::Way* const ways = find_ways(nexts[dst[i]]);
        for (int32_t k = 2; k < ways[0].node; ++k)
          write(place[i] + static_cast<size_t>(k), static_cast<int32_t>(begin + i),
                ways[k + 1].node, ways[k + 1].output);
      }
    }
  }
  void finish() {
    for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &kept, &after})
      column->resize(num_arcs_);
    if (!olabel_.empty()) arrays.olabel.resize(num_arcs_);
    if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();
  }

  Arrays arrays;
  Column kept, before, after;

 private:
  void write(size_t at, int32_t arc, int32_t dst, int32_t last) {
    arrays.src[at] = routes_.id[src_[arc]];
    arrays.dst[at] = dst;
    arrays.ilabel[at] = ilabel_[arc];
    if (!olabel_.empty()) arrays.olabel[at] = olabel_[arc];
    kept[at] = arc;
    after[at] = last;
  }

  std::span<const int32_t> src_, dst_, ilabel_, olabel_;  // of the input; no outputs if the same
  const Routes& routes_;
  std::span<const Closures::Way> ways_;
  size_t num_arcs_ = 0;
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
  Buffer<uint8_t> is_removed(num_arcs);
  uint8_t any = 0;
  for (size_t a = 0; a < num_arcs; ++a)
    any |= is_removed[a] = static_cast<uint8_t>((in[a] == ilabel) & (out[a] == output));
  if (!any) return connect(graph);
  Closures closures(graph, std::move(is_removed), semiring);

  // A start from which removed arcs leave cannot stay one: their weight needs an arc to sit on. The
  // node that stands for all such starts comes first, and so do its arcs, so that a chain stays in
  // order.
  Column merged, start;
  for (int32_t n : t.start()) (closures.is_needed(n) ? merged : start).push_back(n);
  std::vector<Closures::Way> entered;
  int32_t empty_string = -1;
  if (!merged.empty()) entered = closures.from_all(merged, empty_string);
  const Adjacency& leaving = t.out();
  // Calls f(arc, distance before it) for the kept arcs that leave what the starts reach.
  const auto for_entered = [&](const auto& f) {
    for (const auto& [node, before] : entered)
      for (int32_t k = leaving.offset[node]; k < leaving.offset[node + 1]; ++k)
        if (const int32_t a = leaving.arc(k); !closures.is_removed(a)) f(a, before);
  };
  const Routes routes(t, start, merged.empty() ? 0 : 1, closures, for_entered);
  Result result(t, routes, closures.ways(), routes.num_arcs + (empty_string >= 0 ? 1 : 0));
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
  result.finish();
  const Graph distances = std::move(closures).record();
  std::vector<Moved> moved{{graph, ArcMap::gather(std::move(result.kept))},
                           {distances, ArcMap::gather(std::move(result.after))}};
  if (!merged.empty()) moved.push_back({distances, ArcMap::gather(std::move(result.before))});
  const Graph removed = record_moves("remove", std::move(arrays), std::move(moved));
  // Without cycles, what is left of a graph without dead ends has none.
  return t.is_acyclic() && !t.has_dead_ends() ? removed : connect(removed);
}

}  // namespace arcgrad
