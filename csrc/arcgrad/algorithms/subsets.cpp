#include "arcgrad/algorithms/subsets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/renumber.h"
#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

bool is_deterministic(const Topology& t) {
  if (t.start().size() > 1) return false;
  const LabelIndex& index = t.index(Side::input);
  for (int32_t n = 0; n < t.num_nodes(); ++n) {
    const auto labels = std::span<const int32_t>(index.label)
                            .subspan(static_cast<size_t>(index.offset[n]),
                                     static_cast<size_t>(index.offset[n + 1] - index.offset[n]));
    if (std::ranges::binary_search(labels, kEpsilon)) return false;
    if (std::ranges::adjacent_find(labels) != labels.end()) return false;
  }
  return true;
}

PossibleArcs possible_arcs(const Graph& graph) {
  const TopologyPtr& topology = expanded(graph.topology_ptr());
  const Weights weights = graph.weights();
  Column arcs;
  for (int32_t a = 0; a < topology->num_arcs(); ++a)
    if (weights[a] != kNegInf) arcs.push_back(a);
  if (std::ssize(arcs) == topology->num_arcs()) return {topology, {}};
  Column node(static_cast<size_t>(topology->num_nodes()));
  std::iota(node.begin(), node.end(), 0);
  auto possible =
      std::make_shared<Topology>(renumber(*topology, node, topology->num_nodes(), arcs));
  return {std::move(possible), std::move(arcs)};
}

Subsets::Subsets(const char* op, TopologyPtr topology, int64_t max_states)
    : op_(op),
      topology_(std::move(topology)),
      label_(topology_->ilabel()),
      max_states_(max_states),
      is_in_set_(static_cast<size_t>(topology_->num_nodes())) {
  take();
}

void Subsets::collect(int32_t node) {
  const Adjacency& out = topology_->out();
  const auto add = [&](int32_t n) {
    if (is_in_set_[n]) return;
    is_in_set_[n] = true;
    set_.push_back(n);
  };
  size_t open = set_.size();
  add(node);
  for (; open < set_.size(); ++open) {
    const int32_t n = set_[open];
    for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k)
      if (label_[out.arc(k)] == kEpsilon) add(out.node[k]);
  }
}

int32_t Subsets::take() {
  std::ranges::sort(set_);
  uint64_t hash = set_.size();
  for (const int32_t n : set_) {
    is_in_set_[n] = false;
    hash = (hash ^ static_cast<uint64_t>(n)) * 0x9e3779b97f4a7c15u + (hash >> 29);
  }
  const auto [from, to] = found_.equal_range(hash);
  int32_t state = -1;
  for (auto it = from; it != to && state < 0; ++it)
    if (std::ranges::equal(nodes(it->second), set_)) state = it->second;
  if (state < 0) {
    state = num_states();
    require(state < max_states_, op_, "the graph must have at most ", max_states_,
            " sets of nodes that strings lead to, but it has more; determinize it first, or make "
            "it smaller");
    nodes_.insert(nodes_.end(), set_.begin(), set_.end());
    first_.push_back(nodes_.size());
    accepts_.push_back(
        std::ranges::any_of(set_, [&](int32_t n) { return topology_->is_accept(n); }));
    known_.emplace_back();
    found_.emplace(hash, state);
  }
  set_.clear();
  return state;
}

int32_t Subsets::state_of(std::span<const int32_t> nodes) {
  for (const int32_t n : nodes) collect(n);
  return take();
}

int32_t Subsets::joined(int32_t a, int32_t b) {
  if (a == b || b == kEmpty) return a;
  if (a == kEmpty) return b;
  const auto [at, is_new] =
      unions_.emplace(static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b), -1);
  if (is_new) {
    for (const int32_t state : {a, b})
      for (const int32_t n : nodes(state)) collect(n);
    at->second = take();
  }
  return at->second;
}

void Subsets::expand(int32_t state) {
  const Adjacency& out = topology_->out();
  std::vector<std::pair<int32_t, int32_t>> arcs;  // label, destination
  for (const int32_t n : nodes(state))
    for (int32_t k = out.offset[n]; k < out.offset[n + 1]; ++k)
      if (const int32_t label = label_[out.arc(k)]; label != kEpsilon)
        arcs.emplace_back(label, out.node[k]);
  poll_(1 + std::ssize(arcs));
  std::ranges::sort(arcs);
  known_[state].begin = std::ssize(steps_);
  for (size_t k = 0; k < arcs.size();) {
    const int32_t label = arcs[k].first;
    for (; k < arcs.size() && arcs[k].first == label; ++k) collect(arcs[k].second);
    steps_.push_back({label, take()});
  }
  known_[state].end = std::ssize(steps_);
}

int32_t Subsets::next(int32_t state, int32_t label) {
  if (state == kEmpty) return kEmpty;
  if (known_[state].begin < 0) expand(state);
  const auto begin = steps_.begin() + known_[state].begin;
  const auto end = steps_.begin() + known_[state].end;
  const auto at = std::lower_bound(begin, end, label,
                                   [](const LabelStep& s, int32_t l) { return s.label < l; });
  return at != end && at->label == label ? at->to : kEmpty;
}

}  // namespace arcgrad
