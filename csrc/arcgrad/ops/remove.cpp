#include <algorithm>
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
    is_end_.resize(num_nodes);
    has_removed_.resize(num_nodes);
    position_.resize(num_nodes, -1);
    from_.resize(num_nodes, {-1, -1});
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
      has_removed_[n] = here > 0;
      is_end_[n] = here < out.offset[n + 1] - out.offset[n];
    }
    removed_begin_[num_nodes] = count;
    for (int32_t n : t.accept()) is_end_[n] = 1;
  }

  const Buffer<uint8_t>& removed() const { return is_removed_; }
  bool is_removed(int32_t arc) const { return is_removed_[arc]; }
  /// Whether removed arcs leave the node.
  bool is_needed(int32_t node) const { return has_removed_[node]; }

  /// A node that can be reached over removed arcs, and which output of record() its distance is.
  struct Reached {
    int32_t node, output;
  };
  /// The nodes that matter, because they accept or kept arcs leave them. Valid until the next call.
  std::span<const Reached> from(int32_t node) {
    auto& [begin, end] = from_[node];
    if (begin < 0) [[unlikely]] {
      begin = static_cast<int32_t>(reached_.size());
      reach({&node, 1});
      end = static_cast<int32_t>(reached_.size());
    }
    return std::span(reached_).subspan(static_cast<size_t>(begin),
                                       static_cast<size_t>(end - begin));
  }
  /// The same from several nodes at once, and the output that is the sum over all accept nodes
  /// reached, or -1.
  std::vector<Reached> from_all(std::span<const int32_t> nodes, int32_t& empty_string) {
    const size_t first = names_.size(), before = reached_.size();
    reach(nodes);
    const size_t end = names_.size();
    for (size_t i = first; i < end; ++i)
      if (graph_.topology().is_accept(names_[i]))
        link(static_cast<int32_t>(i), static_cast<int32_t>(end), -1);
    empty_string = -1;
    if (!arrays_.dst.empty() && arrays_.dst.back() == static_cast<int32_t>(end)) {
      names_.push_back(-1);
      empty_string = add_target(end);
    }
    return {reached_.begin() + static_cast<ptrdiff_t>(before), reached_.end()};
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

  /// Adds the part of some sources, and what they reach to `reached_`.
  void reach(std::span<const int32_t> sources) {
    const size_t first = names_.size();
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
    require_size("remove", "nodes reached over removed arcs",
                 static_cast<int64_t>(names_.size()) + 1);
    require_size("remove", "removed arcs to be followed", static_cast<int64_t>(arcs_.size()));
    for (size_t i = first; i < names_.size(); ++i)
      if (is_end_[names_[i]]) reached_.push_back({names_[i], add_target(i)});
  }

  const Graph& graph_;
  Semiring semiring_;
  Buffer<uint8_t> is_removed_, is_end_, has_removed_;
  Column removed_, removed_dst_, removed_begin_;  // the removed arcs by the node they leave
  Buffer<Reached> reached_;
  Buffer<std::pair<int32_t, int32_t>> from_;  // of each node: its part of `reached_`
  // The graph of the sweep; `names_` are its nodes and `position_` where one is, if in this part.
  Arrays arrays_;
  Column position_;
  std::vector<int32_t> arcs_, names_, sources_, targets_;
};

/// Where an arc that enters a node goes on to: the first of the nodes that removed arcs reach from
/// there, and how many there are; else the node itself.
struct Onward {
  int32_t node, output, num;
};

/// The arcs of the result: each has the labels and weight of a kept arc of the input, or is an
/// epsilon arc, plus up to two distances over removed arcs, one before it and one after it.
class Result {
 public:
  Result(const Topology& from, int64_t num_arcs, int32_t shift, bool has_before)
      : src_(from.src()), dst_(from.dst()), ilabel_(from.ilabel()), shift_(shift) {
    require_size("remove", "arcs", num_arcs + 1);
    if (!from.is_acceptor()) olabel_ = from.olabel();
    // One more, so that an arc can be written before it is known whether it counts.
    const auto count = static_cast<size_t>(num_arcs) + 1;
    for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &kept, &after})
      column->resize(count);
    if (!olabel_.empty()) arrays.olabel.resize(count);
    if (has_before) before.resize(count);
  }

  /// Adds arcs from the new node, over distance `first`, for an arc of the input and its ways on.
  template <class Ways>
  void enter(int32_t arc, int32_t first, const Ways& onward) {
    for (const auto& [node, output] : onward) {
      write(next_, arc, node, output);
      arrays.src[next_] = 0;
      before[next_++] = first;
    }
  }
  /// Adds an epsilon arc from the new node to `dst`, for a distance alone.
  void add_epsilon(int32_t dst, int32_t distance) {
    arrays.src[next_] = 0;
    arrays.dst[next_] = dst;
    arrays.ilabel[next_] = kEpsilon;
    if (!olabel_.empty()) arrays.olabel[next_] = kEpsilon;
    kept[next_] = after[next_] = -1;
    before[next_++] = distance;
  }
  /// Adds the kept arcs. `ways(node)` has all ways on from a node where there are several.
  template <class Ways>
  void add_kept(const Buffer<uint8_t>& is_removed, const Buffer<Onward>& onward, Ways ways) {
    // What there is of each arc, and so where the next one goes, is found without a jump, which
    // would often be taken by surprise. What does not count is overwritten by what comes after.
    constexpr size_t kBlock = 256, kAhead = 32;
    size_t place[kBlock], several[kBlock];
    const size_t num_arcs = src_.size();
    const int32_t shift = shift_;
    for (size_t begin = 0; begin < num_arcs; begin += kBlock) {
      const size_t count = std::min(kBlock, num_arcs - begin);
      const int32_t* const dst = dst_.data() + begin;
      const uint8_t* const removed = is_removed.data() + begin;
      const size_t ahead = begin + count + kAhead <= num_arcs ? kAhead : 0;
      int32_t *to_dst = arrays.dst.data(), *to_after = after.data();
      size_t next = next_, num_several = 0;
      for (size_t i = 0; i < count; ++i) {
        __builtin_prefetch(&onward[dst[i + ahead]]);
        const Onward& on = onward[dst[i]];
        place[i] = next;
        to_dst[next] = on.node + shift;
        to_after[next] = on.output;
        const int32_t num = on.num & (static_cast<int32_t>(removed[i]) - 1);
        several[num_several] = i;
        num_several += num > 1 ? 1 : 0;
        next += static_cast<size_t>(num);
      }
      next_ = next;
      const auto copy = [&](std::span<const int32_t> from, Column& to, int32_t plus) {
        const int32_t* const in = from.data() + begin;
        int32_t* const out = to.data();
        for (size_t i = 0; i < count; ++i) out[place[i]] = in[i] + plus;
      };
      copy(src_, arrays.src, shift);
      copy(ilabel_, arrays.ilabel, 0);
      if (!olabel_.empty()) copy(olabel_, arrays.olabel, 0);
      int32_t* const to_kept = kept.data();
      for (size_t i = 0; i < count; ++i) to_kept[place[i]] = static_cast<int32_t>(begin + i);
      if (!before.empty())
        for (size_t i = 0; i < count; ++i) before[place[i]] = -1;
      for (size_t i : std::span(several, num_several)) {
        const auto all = ways(dst[i]);
        for (size_t k = 1; k < all.size(); ++k)
          write(place[i] + k, static_cast<int32_t>(begin + i), all[k].node, all[k].output);
      }
    }
  }
  void finish() {
    for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &kept, &after})
      column->resize(next_);
    for (Column* column : {&arrays.olabel, &before})
      if (!column->empty()) column->resize(next_);
    if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();
  }

  Arrays arrays;
  Column kept, before, after;

 private:
  void write(size_t at, int32_t arc, int32_t dst, int32_t last) {
    arrays.src[at] = src_[arc] + shift_;
    arrays.dst[at] = dst + shift_;
    arrays.ilabel[at] = ilabel_[arc];
    if (!olabel_.empty()) arrays.olabel[at] = olabel_[arc];
    kept[at] = arc;
    if (!before.empty()) before[at] = -1;
    after[at] = last;
  }

  std::span<const int32_t> src_, dst_, ilabel_, olabel_;  // of the input; no outputs if the same
  int32_t shift_;
  size_t next_ = 0;
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
  std::vector<Closures::Reached> entered;
  int32_t empty_string = -1;
  if (!merged.empty()) entered = closures.from_all(merged, empty_string);
  const Adjacency& leaving = t.out();
  // Calls f(arc, distance before it) for the kept arcs that leave what the starts reach.
  const auto for_entered = [&](const auto& f) {
    for (const auto& [node, before] : entered)
      for (int32_t k = leaving.offset[node]; k < leaving.offset[node + 1]; ++k)
        if (const int32_t a = leaving.arc(k); !closures.is_removed(a)) f(a, before);
  };
  // A kept arc goes on to whatever removed arcs reach from its end.
  Buffer<uint32_t> num_in(static_cast<size_t>(t.num_nodes()), 0);
  for (size_t a = 0; a < num_arcs; ++a) num_in[dst[a]] += 1 - closures.removed()[a];
  for_entered([&](int32_t a, int32_t) { ++num_in[dst[a]]; });
  Buffer<Onward> onward(num_in.size());
  int64_t count = empty_string >= 0 ? 1 : 0;
  for (int32_t n = 0; n < t.num_nodes(); ++n) {
    onward[n] = {n, -1, 1};
    if (closures.is_needed(n) && num_in[n] > 0) {
      const auto ways = closures.from(n);
      onward[n].num = static_cast<int32_t>(ways.size());
      if (!ways.empty()) {
        onward[n].node = ways[0].node;
        onward[n].output = ways[0].output;
      }
    }
    count += static_cast<int64_t>(num_in[n]) * onward[n].num;
  }
  const int32_t shift = merged.empty() ? 0 : 1;
  Result result(t, count, shift, !merged.empty());
  Arrays& arrays = result.arrays;
  arrays.num_nodes = t.num_nodes() + shift;
  if (!merged.empty()) arrays.start.push_back(0);
  for (int32_t n : start) arrays.start.push_back(n + shift);
  for (int32_t n : t.accept()) arrays.accept.push_back(n + shift);
  for_entered([&](int32_t a, int32_t before) {
    const Closures::Reached itself{dst[a], -1};
    result.enter(a, before,
                 closures.is_needed(dst[a]) ? closures.from(dst[a]) : std::span(&itself, 1));
  });
  if (empty_string >= 0) {
    result.add_epsilon(arrays.num_nodes, empty_string);
    arrays.accept.push_back(arrays.num_nodes++);
  }
  result.add_kept(closures.removed(), onward, [&](int32_t node) { return closures.from(node); });
  result.finish();
  const Graph distances = std::move(closures).record();
  std::vector<Moved> moved{{graph, ArcMap::gather(std::move(result.kept))},
                           {distances, ArcMap::gather(std::move(result.after))}};
  if (!merged.empty()) moved.push_back({distances, ArcMap::gather(std::move(result.before))});
  return connect(record_moves("remove", std::move(arrays), std::move(moved)));
}

}  // namespace arcgrad
