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
    removed_begin_.resize(num_nodes + 1);
    int32_t count = 0;
    for (size_t n = 0; n < num_nodes; ++n) {
      removed_begin_[n] = count;
      for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k) {
        removed_[count] = out.arc(k);
        count += is_removed_[out.arc(k)];
      }
      const int32_t here = count - removed_begin_[n];
      has_removed_[n] = here > 0;
      is_end_[n] = here < out.offset[n + 1] - out.offset[n];
    }
    removed_begin_[num_nodes] = count;
    for (int32_t n : t.accept()) is_end_[n] = 1;
  }

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
    const std::span<const int32_t> dst = graph_.topology().dst();
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
        link(static_cast<int32_t>(i), visit(dst[removed_[k]]), removed_[k]);
    require_size("remove", "nodes reached over removed arcs",
                 static_cast<int64_t>(names_.size()) + 1);
    require_size("remove", "removed arcs to be followed", static_cast<int64_t>(arcs_.size()));
    for (size_t i = first; i < names_.size(); ++i)
      if (is_end_[names_[i]]) reached_.push_back({names_[i], add_target(i)});
  }

  const Graph& graph_;
  Semiring semiring_;
  Buffer<uint8_t> is_removed_, is_end_, has_removed_;
  Column removed_, removed_begin_;  // the removed arcs by the node they leave
  std::vector<Reached> reached_;
  Buffer<std::pair<int32_t, int32_t>> from_;  // of each node: its part of `reached_`
  // The graph of the sweep; `names_` are its nodes and `position_` where one is, if in this part.
  Arrays arrays_;
  Column position_;
  std::vector<int32_t> arcs_, names_, sources_, targets_;
};

/// The arcs of the result: each has the labels and weight of a kept arc of the input, or is an
/// epsilon arc, plus up to two distances over removed arcs, one before it and one after it.
struct Result {
  Result(const Topology& from, int64_t num_arcs, bool has_before) : from(from) {
    require_size("remove", "arcs", num_arcs);
    const auto count = static_cast<size_t>(num_arcs);
    for (Column* column : {&arrays.src, &arrays.dst, &arrays.ilabel, &kept, &after})
      column->resize(count);
    if (!from.is_acceptor()) arrays.olabel.resize(count);
    if (has_before) before.resize(count);
  }

  void add(int32_t src, int32_t dst, int32_t arc, int32_t first, int32_t last) {
    arrays.src[next] = src;
    arrays.dst[next] = dst;
    arrays.ilabel[next] = arc < 0 ? kEpsilon : ilabel[arc];
    if (!arrays.olabel.empty()) arrays.olabel[next] = arc < 0 ? kEpsilon : olabel[arc];
    kept[next] = arc;
    if (!before.empty()) before[next] = first;
    after[next++] = last;
  }

  const Topology& from;
  const std::span<const int32_t> ilabel = from.ilabel(), olabel = from.olabel();
  Arrays arrays;
  Column kept, before, after;
  size_t next = 0;
};

}  // namespace

Graph remove(const Graph& graph, int32_t ilabel, std::optional<int32_t> olabel, Semiring semiring) {
  const int32_t output = olabel.value_or(ilabel);
  require(ilabel >= kEpsilon && output >= kEpsilon, "remove",
          "the labels must be 0 or more, or epsilon (-1), but they are ", ilabel, " and ", output);
  const Topology& t = graph.topology();
  const auto src = t.src(), dst = t.dst(), in = t.ilabel(), out = t.olabel();
  require_scorable("remove", graph.weights());
  const auto num_arcs = static_cast<size_t>(t.num_arcs());
  Buffer<uint8_t> is_removed(num_arcs);
  uint8_t any = 0;
  for (size_t a = 0; a < num_arcs; ++a)
    any |= is_removed[a] = static_cast<uint8_t>(in[a] == ilabel && out[a] == output);
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
  // Calls f(source, arc, distance before it) for the kept arcs of the result.
  const int32_t shift = merged.empty() ? 0 : 1;
  const auto for_arcs = [&](const auto& f) {
    for (const auto& [node, before] : entered)
      for (int32_t k = t.out().offset[node]; k < t.out().offset[node + 1]; ++k)
        if (!closures.is_removed(t.out().arc(k))) f(0, t.out().arc(k), before);
    if (empty_string >= 0) f(0, -1, empty_string);
    for (int32_t a = 0; a < t.num_arcs(); ++a)
      if (!closures.is_removed(a)) f(src[a] + shift, a, -1);
  };
  // A kept arc goes on to whatever removed arcs reach from its end.
  Buffer<uint32_t> num_in(static_cast<size_t>(t.num_nodes()), 0);
  for_arcs([&](int32_t, int32_t a, int32_t) {
    if (a >= 0) ++num_in[dst[a]];
  });
  int64_t count = empty_string >= 0 ? 1 : 0;
  for (int32_t n = 0; n < t.num_nodes(); ++n)
    if (num_in[n] > 0)
      count += num_in[n] *
               (closures.is_needed(n) ? static_cast<int64_t>(closures.from(n).size()) : int64_t{1});
  Result result(t, count, !merged.empty());
  Arrays& arrays = result.arrays;
  arrays.num_nodes = t.num_nodes() + shift;
  if (!merged.empty()) arrays.start.push_back(0);
  for (int32_t n : start) arrays.start.push_back(n + shift);
  for (int32_t n : t.accept()) arrays.accept.push_back(n + shift);
  const int32_t end = arrays.num_nodes;
  if (empty_string >= 0) arrays.accept.push_back(arrays.num_nodes++);
  for_arcs([&](int32_t from, int32_t a, int32_t before) {
    if (a < 0 || !closures.is_needed(dst[a]))
      return result.add(from, a < 0 ? end : dst[a] + shift, a, before, -1);
    for (const auto& [to, output] : closures.from(dst[a]))
      result.add(from, to + shift, a, before, output);
  });
  if (arrays.ilabel == arrays.olabel) arrays.olabel.clear();
  const Graph distances = std::move(closures).record();
  std::vector<Moved> moved{{graph, ArcMap::gather(std::move(result.kept))},
                           {distances, ArcMap::gather(std::move(result.after))}};
  if (!merged.empty()) moved.push_back({distances, ArcMap::gather(std::move(result.before))});
  return connect(record_moves("remove", std::move(arrays), std::move(moved)));
}

}  // namespace arcgrad
