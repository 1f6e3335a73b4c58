#include "arcgrad/algorithms/path_scores_cyclic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/cycle_solver.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Path scores with cycles: strongly connected components are visited in topological order, so that
// all scores outside a component that its nodes depend on are final. With b the scores that arrive
// from outside and A the exponentials of the arcs inside, the scores x of the nodes satisfy
// x = b + A^T x. The series converges if and only if the spectral radius of A is below 1, which
// holds if and only if elimination without pivoting meets only positive pivots (I - A is then an
// M-matrix). A and b are taken relative to the best paths, so that no entry overflows. The cost
// depends on the cycles, see sparse_lu.cpp.
//
// In the tropical semiring a component is solved by best_cycle_paths().

namespace arcgrad {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

/// "{0, 3, 4}", shortened if long, with the names that the caller gave the nodes.
std::string list_nodes(std::span<const int32_t> nodes, std::span<const int32_t> names) {
  std::string out = "{";
  for (size_t i = 0; i < std::min<size_t>(nodes.size(), 8); ++i)
    out += text(i ? ", " : "", names.empty() ? nodes[i] : names[nodes[i]]);
  return out + (nodes.size() > 8 ? ", ...}" : "}");
}

/// The useful nodes and arcs of a strongly connected component; nodes are numbered within it.
struct ComponentArcs {
  std::vector<int32_t> nodes;
  std::vector<InnerArc> arcs;  // by destination and ascending slot
  /// For each node the sum or maximum of the scores that arrive from outside.
  std::vector<double> inflow;
  std::vector<int32_t> slot;  // of the arc with that maximum, or -1

  size_t size() const { return nodes.size(); }
};

class CyclicRecursion {
 public:
  CyclicRecursion(PathTable& table, const Weights& weights, std::span<const int32_t> sources,
                  const PathOptions& options)
      : table_(table),
        options_(options),
        weight_(weights.to_vector()),
        is_log_(options.semiring == Semiring::log),
        marks_(static_cast<size_t>(table.topology->num_nodes()), 0),
        local_(marks_.size(), -1) {
    const Topology& t = *table.topology;
    const size_t num_nodes = local_.size();
    if (is_log_) {
      table.log_scores.resize(num_nodes);
    } else {
      table.plain_scores.assign(num_nodes, kNegInf);
      table.best_slot.assign(num_nodes, -1);
      table.length_inside.resize(num_nodes);
    }
    std::vector<int32_t> possible;
    for (int32_t n : sources)
      if (table.is_source[n]) possible.push_back(n);
    mark_possible(table.is_reverse ? t.in() : t.out(), possible, kReached);
    if (options.targets) mark_possible(*table.adjacency, *options.targets, kReaching);
    useful_ = options.targets ? kReached | kReaching : kReached;
  }

  void run() {
    const std::vector<int32_t>& bounds = table_.topology->order().component;
    const int32_t num_nodes = table_.topology->num_nodes();
    std::vector<int32_t> order;
    int32_t begin = 0;
    InterruptPoll poll;
    for (size_t c = 0; begin < num_nodes; ++c) {
      constexpr int64_t kWork = 10;
      poll(kWork);
      int32_t end = begin + 1;
      if (!bounds.empty()) {
        const int32_t* at = &bounds[table_.is_reverse ? bounds.size() - 2 - c : c];
        end = begin + at[1] - at[0];
      }
      std::vector<int32_t> nodes;
      for (int32_t p = begin; p < end; ++p)
        (is_useful(table_.node(p)) ? nodes : order).push_back(table_.node(p));
      begin = end;
      std::sort(nodes.begin(), nodes.end());
      for (size_t i = 0; i < nodes.size(); ++i) local_[nodes[i]] = static_cast<int32_t>(i);
      ComponentArcs component = gather(std::move(nodes));
      if (is_log_)
        solve_log(component);
      else
        solve_best(component);
      for (int32_t n : component.nodes) {
        local_[n] = -1;
        order.push_back(n);
      }
    }
    table_.order = std::move(order);
  }

 private:
  static constexpr uint8_t kReached = 1, kReaching = 2;

  /// Follows only arcs of weight above -inf.
  void mark_possible(const Adjacency& along, std::span<const int32_t> from, uint8_t bit) {
    mark_reachable(
        along, from, [&](int32_t k) { return weight_[along.arc(k)] > kNegInf; }, bit, marks_);
  }
  bool is_useful(int32_t node) const { return marks_[node] == useful_; }

  ComponentArcs gather(std::vector<int32_t> nodes) const {
    const Adjacency& adjacency = *table_.adjacency;
    ComponentArcs out;
    InterruptPoll poll;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int32_t d = nodes[i];
      poll(1 + adjacency.offset[d + 1] - adjacency.offset[d]);
      const double begin = table_.begin(d);
      const bool is_weighted = !table_.sources.empty();
      double inflow = is_weighted ? kNegInf : begin;
      int32_t slot = -1;
      for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
        const int32_t s = adjacency.node[k];
        const double w = weight_[adjacency.arc(k)];
        if (w == kNegInf || !is_useful(s)) continue;
        if (local_[s] >= 0) {
          out.arcs.push_back({local_[s], static_cast<int32_t>(i), k, w});
          continue;
        }
        const double arriving = table_.score(s) + w;
        if (arriving > inflow) slot = k;
        inflow = is_log_ ? logadd(inflow, arriving) : std::max(inflow, arriving);
      }
      if (is_weighted && begin > kNegInf) {
        if (begin > inflow) slot = -1;
        inflow = is_log_ ? logadd(inflow, begin) : std::max(inflow, begin);
      }
      out.inflow.push_back(inflow);
      out.slot.push_back(slot);
    }
    out.nodes = std::move(nodes);
    return out;
  }

  [[noreturn]] void fail_divergent(const ComponentArcs& component) const {
    const double log_radius = log_spectral_radius(component.arcs, component.size());
    const std::string radius =
        log_radius < 300.0 ? text(std::exp(log_radius)) : text("exp(", log_radius, ")");
    fail(options_.op,
         "the sum over paths must converge, so the spectral radius of every strongly connected "
         "component must be below 1, but the component of nodes ",
         list_nodes(component.nodes, options_.names), " has radius ", radius);
  }

  /// Factors (I - A) and returns the scores of the nodes.
  std::vector<double> solve_cycles(const ComponentArcs& component) {
    const size_t n = component.size();
    const auto paths = best_cycle_paths(component.arcs, component.inflow, component.slot);
    if (!paths) fail_divergent(component);
    const std::vector<double>& best = paths->score;
    const bool is_single_loop = component.arcs.size() == 1;
    const double least =
        is_single_loop ? std::numeric_limits<double>::min() : 4.0 * static_cast<double>(n) * kEps;
    auto lu = SparseLu::factor(n, cycle_matrix(component.arcs, best), least);
    if (!lu) fail_divergent(component);
    if (lu->num_dense() > SparseLu::kMaxDense)
      fail(options_.op, "a strongly connected component may have at most ", SparseLu::kMaxDense,
           " nodes that are densely connected, but the one with nodes ",
           list_nodes(component.nodes, options_.names), " has ", lu->num_dense(), " of its ", n);
    FactoredComponent factored{component.nodes, std::vector<double>(n), std::move(*lu)};
    for (size_t i = 0; i < n; ++i) factored.scale[i] = std::exp(component.inflow[i] - best[i]);
    factored.lu.solve_transposed(factored.scale);
    std::vector<double> value(n);
    for (size_t i = 0; i < n; ++i) value[i] = best[i] + std::log(factored.scale[i]);
    if (table_.keep) {
      if (table_.component_of.empty()) table_.component_of.assign(local_.size(), -1);
      for (int32_t d : component.nodes)
        table_.component_of[d] = static_cast<int32_t>(table_.components.size());
      table_.components.push_back(std::move(factored));
    }
    return value;
  }

  void solve_log(const ComponentArcs& component) {
    const std::vector<double> value =
        component.arcs.empty() ? component.inflow : solve_cycles(component);
    for (size_t i = 0; i < component.size(); ++i) {
      double mantissa, exponent;
      split_exp(&value[i], 1, &mantissa, &exponent);
      if (value[i] > kNegInf)
        table_.log_scores[component.nodes[i]] = renormalize(mantissa, exponent);
    }
    if (!table_.keep) return;
    const Adjacency& adjacency = *table_.adjacency;
    for (size_t i = 0; i < component.size(); ++i) {
      const int32_t d = component.nodes[i];
      table_.inverse_sum[d] = 1.0;
      table_.set_source_term(d, std::exp(table_.begin(d) - value[i]));
      for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
        const int32_t s = adjacency.node[k];
        const double w = weight_[adjacency.arc(k)];
        if (w > kNegInf && is_useful(s)) table_.term[k] = std::exp(table_.score(s) + w - value[i]);
      }
    }
  }

  /// Also sorts the nodes so that each comes after its predecessor on the best path, as in a graph
  /// without cycles.
  void solve_best(ComponentArcs& component) {
    const auto paths = best_cycle_paths(component.arcs, component.inflow, component.slot);
    if (!paths)
      fail(options_.op,
           "the best path must exist, so no cycle may have a positive weight, but one among the "
           "nodes ",
           list_nodes(component.nodes, options_.names), " has");
    std::vector<int32_t> by_length(component.size());
    for (size_t i = 0; i < by_length.size(); ++i) {
      by_length[i] = static_cast<int32_t>(i);
      table_.plain_scores[component.nodes[i]] = paths->score[i];
      table_.best_slot[component.nodes[i]] = paths->slot[i];
      table_.length_inside[component.nodes[i]] = {component.nodes[0], paths->length[i]};
    }
    std::ranges::stable_sort(by_length, {}, [&](int32_t i) { return paths->length[i]; });
    std::vector<int32_t> nodes;
    for (int32_t i : by_length) nodes.push_back(component.nodes[i]);
    component.nodes = std::move(nodes);
  }

  PathTable& table_;
  const PathOptions& options_;
  std::vector<double> weight_;
  bool is_log_;
  Buffer<uint8_t> marks_;       // of each node
  uint8_t useful_ = 0;          // the marks of a node on a possible path from a source to a target
  std::vector<int32_t> local_;  // the index of each node in the current component, or -1
};

}  // namespace

void run_cyclic(PathTable& table, const Weights& weights, std::span<const int32_t> sources,
                const PathOptions& options) {
  CyclicRecursion(table, weights, sources, options).run();
}

}  // namespace arcgrad
