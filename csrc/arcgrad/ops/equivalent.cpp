#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/label_codes.h"
#include "arcgrad/algorithms/label_delay.h"
#include "arcgrad/algorithms/node_limit.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/algorithms/subset_construction.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/remove.h"
#include "arcgrad/runtime/grad_mode.h"

// Both graphs are made deterministic. A string then leads to one node of each. If a pair of nodes
// is reached by two strings, the difference between the scores of their paths in the two graphs
// must be the same, because what follows is (Hopcroft and Karp 1971, with weights). Transducers are
// synchronized first, so that a pair of strings is spelled in one way only.

namespace arcgrad {
namespace {

constexpr char kOp[] = "equivalent";

/// The form in which graphs are compared. Throws if it has more than `max_nodes`.
Graph canonical(const Graph& graph, bool is_transducer, Semiring semiring, int64_t max_nodes) {
  const Graph removed = remove_epsilons(
      kOp, is_transducer ? delay_labels(kOp, graph, DelayRule::pairs, max_nodes) : graph, semiring);
  return construct_subsets(
      removed, LabelCodes(removed.topology()),
      {.op = kOp, .semiring = semiring, .max_nodes = max_nodes, .is_original = false});
}

/// A deterministic graph whose arcs are sorted by their labels.
class DeterministicForm {
 public:
  struct Transition {
    std::pair<int32_t, int32_t> labels;
    int32_t dst;
    double weight;
  };

  explicit DeterministicForm(const Graph& graph)
      : graph_(graph), weights_(graph.weights()), out_(graph.topology().out()) {}

  std::span<const int32_t> start() const { return graph_.topology().start(); }
  double start_weight() const { return graph_.start_weights()[0]; }
  int32_t num_nodes() const { return graph_.num_nodes(); }
  /// The weight of ending at a node, or nothing.
  std::optional<double> end(int32_t node) const {
    const Topology& t = graph_.topology();
    if (!t.is_accept(node)) return std::nullopt;
    return t.has_node_weights() ? weights_[t.accept_weight(node)] : 0.0;
  }
  std::vector<Transition> transitions(int32_t node) const {
    const Topology& t = graph_.topology();
    std::vector<Transition> found;
    for (int32_t k = out_.offset[node]; k < out_.offset[node + 1]; ++k) {
      const int32_t a = out_.arc(k);
      found.push_back({{t.ilabel()[a], t.olabel()[a]}, out_.node[k], weights_[a]});
    }
    std::ranges::sort(found, {}, &Transition::labels);
    return found;
  }

 private:
  const Graph& graph_;
  const Weights weights_;
  const Adjacency& out_;
};

bool walk(const DeterministicForm& a, const DeterministicForm& b, double tol) {
  if (a.start().empty() || b.start().empty()) return a.start().empty() && b.start().empty();
  const auto is_close = [&](double x, double y) { return std::abs(x - y) <= tol; };
  PairIds pairs(kOp, a.num_nodes(), b.num_nodes(), 1);
  // Of the path in the first graph, for each pair.
  std::vector<double> lead{a.start_weight() - b.start_weight()};
  pairs[pairs.key({a.start()[0], b.start()[0]})];
  InterruptPoll poll;
  for (int32_t id = 0; id < pairs.size(); ++id) {
    const Pair pair = pairs.pair(id);
    const auto end_a = a.end(pair.first), end_b = b.end(pair.second);
    const auto steps_a = a.transitions(pair.first), steps_b = b.transitions(pair.second);
    poll(1 + std::ssize(steps_a));
    if (steps_a.size() != steps_b.size() || end_a.has_value() != end_b.has_value()) return false;
    if (end_a && !is_close(lead[id] + *end_a, *end_b)) return false;
    for (size_t k = 0; k < steps_a.size(); ++k) {
      if (steps_a[k].labels != steps_b[k].labels) return false;
      const double next = lead[id] + steps_a[k].weight - steps_b[k].weight;
      const int32_t to = pairs[pairs.key({steps_a[k].dst, steps_b[k].dst})];
      if (to == std::ssize(lead))
        lead.push_back(next);
      else if (!is_close(lead[to], next))
        return false;
    }
  }
  return true;
}

}  // namespace

bool equivalent(const Graph& a, const Graph& b, double tol, Semiring semiring,
                std::optional<int64_t> max_nodes) {
  require(tol >= 0.0, kOp, "tol must be 0 or more, but it is ", tol);
  const GradMode off(false);
  const bool is_transducer = !is_acceptor(a) || !is_acceptor(b);
  const Graph* graphs[] = {&a, &b};
  std::vector<Graph> forms;
  for (const Graph* graph : graphs) {
    require_no_failures(kOp, graph->topology());
    require_scorable(kOp, graph->topology(), graph->weights());
    const int64_t limit = node_limit(kOp, *graph, max_nodes);
    try {
      forms.push_back(canonical(*graph, is_transducer, semiring, limit));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(text(error.what(), "; rand_equivalent compares random paths"));
    }
  }
  return walk(DeterministicForm(forms[0]), DeterministicForm(forms[1]), tol);
}

}  // namespace arcgrad
