#include <algorithm>
#include <unordered_map>

#include "arcgrad/distances.h"
#include "arcgrad/error.h"
#include "arcgrad/ops.h"

namespace arcgrad {
namespace {

/// Builds the distances over removed arcs from one node after the other.
class Closures {
 public:
  Closures(const Graph& graph, std::vector<bool> is_removed, Semiring semiring)
      : graph_(graph), semiring_(semiring), is_removed_(std::move(is_removed)) {
    const Topology& t = graph.topology();
    is_end_.resize(static_cast<size_t>(t.num_nodes()));
    has_removed_.resize(is_end_.size());
    for (int32_t n : t.accept()) is_end_[n] = true;
    for (int32_t a = 0; a < t.num_arcs(); ++a)
      (is_removed_[a] ? has_removed_ : is_end_)[t.src()[a]] = true;
  }

  bool is_removed(int32_t arc) const { return is_removed_[arc]; }
  /// Whether removed arcs leave the node.
  bool is_needed(int32_t node) const { return has_removed_[node]; }

  /// A node that can be reached over removed arcs, and which output of record() its distance is.
  struct Reached {
    int32_t node, output;
  };
  /// The nodes that matter, because they accept or kept arcs leave them.
  const std::vector<Reached>& from(int32_t node) {
    auto [at, is_new] = from_.try_emplace(node);
    if (is_new) at->second = build(std::span(&node, 1), nullptr);
    return at->second;
  }
  /// The same from several nodes at once, and the output that is the sum over all accept nodes
  /// reached, or -1.
  std::vector<Reached> from_all(std::span<const int32_t> nodes, int32_t& empty_string) {
    return build(nodes, &empty_string);
  }

  Graph record() && {
    return record_distances("remove", graph_, std::move(parts_), graph_.dtype());
  }

 private:
  /// The sweep runs on a graph of its own: the reached nodes, after a node before all sources and,
  /// if `empty_string` is wanted, before a node after all accepts.
  std::vector<Reached> build(std::span<const int32_t> sources, int32_t* empty_string) {
    const Topology& t = graph_.topology();
    const Adjacency& out = t.out();
    Arrays arrays;
    std::vector<int32_t> arcs, nodes;
    std::unordered_map<int32_t, int32_t> local;
    auto visit = [&](int32_t n) {
      auto [at, is_new] = local.try_emplace(n, static_cast<int32_t>(nodes.size()) + 1);
      if (is_new) nodes.push_back(n);
      return at->second;
    };
    auto link = [&](int32_t src, int32_t dst, int32_t arc) {
      arrays.src.push_back(src);
      arrays.dst.push_back(dst);
      arcs.push_back(arc);
    };
    for (int32_t n : sources) link(0, visit(n), -1);
    for (size_t i = 0; i < nodes.size(); ++i)
      for (int32_t k = out.offset[nodes[i]]; k < out.offset[nodes[i] + 1]; ++k)
        if (is_removed_[out.arc(k)])
          link(static_cast<int32_t>(i) + 1, visit(out.node[k]), out.arc(k));
    arrays.num_nodes = static_cast<int32_t>(nodes.size()) + 1;

    std::vector<int32_t> targets;
    std::vector<Reached> reached;
    for (size_t i = 0; i < nodes.size(); ++i)
      if (is_end_[nodes[i]]) {
        targets.push_back(static_cast<int32_t>(i) + 1);
        reached.push_back({nodes[i], num_outputs_++});
      }
    if (empty_string) {
      *empty_string = -1;
      const int32_t end = arrays.num_nodes;
      for (size_t i = 0; i < nodes.size(); ++i)
        if (t.is_accept(nodes[i])) link(static_cast<int32_t>(i) + 1, end, -1);
      if (arrays.dst.back() == end) {
        ++arrays.num_nodes;
        targets.push_back(end);
        *empty_string = num_outputs_++;
      }
    }
    arrays.ilabel.assign(arcs.size(), kEpsilon);
    Weights weights = Weights::zeros(static_cast<int64_t>(arcs.size()), graph_.dtype());
    ArcMap::gather(arcs).apply(graph_.weights(), weights, 1.0);
    const int32_t source[] = {0};
    std::vector<int32_t> names{-1};
    names.insert(names.end(), nodes.begin(), nodes.end());
    names.push_back(-1);
    Sweep sweep(std::make_shared<Topology>(std::move(arrays)), weights, source,
                {.op = "remove",
                 .semiring = semiring_,
                 .keep = tracks(graph_),
                 .targets = targets,
                 .exact_sums = true,
                 .names = names});
    parts_.push_back({std::move(sweep), std::move(arcs), std::move(targets)});
    return reached;
  }

  const Graph& graph_;
  Semiring semiring_;
  std::vector<bool> is_removed_, is_end_, has_removed_;
  std::unordered_map<int32_t, std::vector<Reached>> from_;
  std::vector<Distances> parts_;
  int32_t num_outputs_ = 0;
};

/// The graph that is being built: every arc has the weight of a kept arc of the input, plus up to
/// two distances over removed arcs, one before it and one after it.
struct Result {
  Arrays arrays;
  std::vector<int32_t> kept, before, after;

  void add(int32_t src, int32_t dst, int32_t ilabel, int32_t olabel, int32_t arc, int32_t first,
           int32_t last) {
    arrays.src.push_back(src);
    arrays.dst.push_back(dst);
    arrays.ilabel.push_back(ilabel);
    arrays.olabel.push_back(olabel);
    kept.push_back(arc);
    before.push_back(first);
    after.push_back(last);
  }
};

}  // namespace

Graph remove(const Graph& graph, int32_t ilabel, std::optional<int32_t> olabel, Semiring semiring) {
  const int32_t output = olabel.value_or(ilabel);
  require(ilabel >= kEpsilon && output >= kEpsilon, "remove",
          "the labels must be 0 or more, or epsilon (-1), but they are ", ilabel, " and ", output);
  const Topology& t = graph.topology();
  const auto src = t.src(), dst = t.dst(), in = t.ilabel(), out = t.olabel();
  require_scorable("remove", graph.weights());
  std::vector<bool> is_removed(static_cast<size_t>(t.num_arcs()));
  bool any = false;
  for (size_t a = 0; a < is_removed.size(); ++a)
    if (in[a] == ilabel && out[a] == output) any = is_removed[a] = true;
  if (!any) return connect(graph);
  Closures closures(graph, std::move(is_removed), semiring);

  // A start from which removed arcs leave cannot stay one: their weight needs an arc to sit on. The
  // node that stands for all such starts comes first, and so do its arcs, so that a chain stays in
  // order.
  Column merged;
  Result result;
  for (int32_t n : t.start()) (closures.is_needed(n) ? merged : result.arrays.start).push_back(n);
  const int32_t shift = merged.empty() ? 0 : 1;
  result.arrays.num_nodes = t.num_nodes() + shift;
  for (int32_t& n : result.arrays.start) n += shift;
  for (int32_t n : t.accept()) result.arrays.accept.push_back(n + shift);
  // A kept arc goes on to whatever removed arcs reach from its end.
  auto extend = [&](int32_t from, int32_t a, int32_t before) {
    if (!closures.is_needed(dst[a]))
      return result.add(from, dst[a] + shift, in[a], out[a], a, before, -1);
    for (const auto& [to, output] : closures.from(dst[a]))
      result.add(from, to + shift, in[a], out[a], a, before, output);
  };
  if (!merged.empty()) {
    result.arrays.start.insert(result.arrays.start.begin(), 0);
    int32_t empty_string;
    for (const auto& [node, before] : closures.from_all(merged, empty_string))
      for (int32_t k = t.out().offset[node]; k < t.out().offset[node + 1]; ++k)
        if (!closures.is_removed(t.out().arc(k))) extend(0, t.out().arc(k), before);
    if (empty_string >= 0) {
      const int32_t end = result.arrays.num_nodes++;
      result.arrays.accept.push_back(end);
      result.add(0, end, kEpsilon, kEpsilon, -1, empty_string, -1);
    }
  }
  for (int32_t a = 0; a < t.num_arcs(); ++a)
    if (!closures.is_removed(a)) extend(src[a] + shift, a, -1);
  require_size("remove", "arcs", static_cast<int64_t>(result.kept.size()));
  if (result.arrays.ilabel == result.arrays.olabel) result.arrays.olabel.clear();
  const Graph distances = std::move(closures).record();
  return connect(record_moves("remove", std::move(result.arrays),
                              {{graph, ArcMap::gather(std::move(result.kept))},
                               {distances, ArcMap::gather(std::move(result.before))},
                               {distances, ArcMap::gather(std::move(result.after))}}));
}

}  // namespace arcgrad
