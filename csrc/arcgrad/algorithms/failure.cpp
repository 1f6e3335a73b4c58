#include "arcgrad/algorithms/failure.h"

#include <algorithm>
#include <memory>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

Failures::Failures(std::string_view op, const Topology& topology, Side side)
    : index_(topology.index(side)),
      parent_(static_cast<size_t>(topology.num_nodes()), -1),
      arc_(parent_.size(), -1),
      first_label_(parent_.size()) {
  check_labels(op, topology, side);
  InterruptPoll poll;
  for (int32_t n = 0; n < topology.num_nodes(); ++n) {
    const int32_t end = index_.offset[n + 1];
    int32_t k = index_.offset[n];
    poll(end - k);
    for (; k < end && index_.label[k] < 0; ++k) {
      has_rest_ |= index_.label[k] == kRho;
      if (index_.label[k] != kPhi) continue;
      require(parent_[n] < 0, op, "at most one failure arc (phi) may leave a node, but node ", n,
              " has the arcs ", arc_[n], " and ", index_.arc[k]);
      parent_[n] = index_.dst[k];
      arc_[n] = index_.arc[k];
    }
    first_label_[n] = k;
  }
  check_cycles(op);
  find_ends(topology, side);
}

/// The other label of a failure arc is phi or epsilon. That of a rest arc is rho, which stands for
/// the same label, or any other but phi.
void Failures::check_labels(std::string_view op, const Topology& topology, Side side) const {
  if (topology.is_acceptor()) return;
  const auto own = topology.label(side);
  const auto other = topology.label(side == Side::input ? Side::output : Side::input);
  for (size_t a = 0; a < own.size(); ++a) {
    const bool is_allowed = own[a] == kPhi   ? other[a] == kPhi || other[a] == kEpsilon
                            : own[a] == kRho ? other[a] != kPhi
                                             : other[a] >= kEpsilon;
    require(is_allowed, op,
            "phi may be beside phi or epsilon, and rho beside rho, epsilon or a label, where the "
            "side with that label is not matched, but arc ",
            a, " has the labels ", topology.ilabel()[a], ":", topology.olabel()[a]);
  }
}

void Failures::check_cycles(std::string_view op) const {
  std::vector<bool> is_done(parent_.size());
  std::vector<int32_t> walk;
  for (int32_t from = 0; from < static_cast<int32_t>(parent_.size()); ++from) {
    walk.clear();
    for (int32_t n = from; n >= 0 && !is_done[n]; n = parent_[n]) {
      is_done[n] = true;
      walk.push_back(n);
    }
    if (walk.empty()) continue;
    const int32_t last = parent_[walk.back()];
    require(last < 0 || std::ranges::find(walk, last) == walk.end(), op,
            "failure arcs (phi) must not form a cycle, but those through node ", last, " do");
  }
}

void Failures::find_ends(const Topology& topology, Side side) {
  ends_.resize(parent_.size());
  std::vector<int32_t> stack(topology.accept().begin(), topology.accept().end());
  for (const int32_t n : stack) ends_[n] = true;
  if (stack.size() == ends_.size()) return;
  const Adjacency& in = topology.in();
  const auto label = topology.label(side);
  InterruptPoll poll;
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    poll(in.offset[n + 1] - in.offset[n]);
    for (int32_t k = in.offset[n]; k < in.offset[n + 1]; ++k) {
      const int32_t from = in.node[static_cast<size_t>(k)];
      if (label[in.arc(k)] != kEpsilon || ends_[from]) continue;
      ends_[from] = true;
      stack.push_back(from);
    }
  }
}

Failures::ArcSlots Failures::slots(int32_t node) const {
  const auto n = static_cast<size_t>(node);
  ArcSlots out{index_.offset[n], 0, 0, first_label_[n], index_.offset[n + 1]};
  out.failure = out.rest;
  while (out.failure < out.label && index_.label[out.failure] == kRho) ++out.failure;
  out.epsilon = out.failure + (parent_[n] >= 0 ? 1 : 0);
  return out;
}

int32_t Failures::find(int32_t begin, int32_t end, int32_t label) const {
  const auto first = index_.label.begin();
  return static_cast<int32_t>(std::lower_bound(first + begin, first + end, label) - first);
}

const Failures* find_failures(std::string_view op, const Topology& topology, Side side) {
  if (!topology.has_special_labels(side)) return nullptr;
  const bool by_input = side == Side::input || topology.is_acceptor();
  return &topology.memo<Failures>(
      by_input ? Memo::failures_by_input : Memo::failures_by_output,
      [&] { return Failures(op, topology, by_input ? Side::input : Side::output); });
}

void require_matched(std::string_view op, const Topology& topology, Side matched) {
  const bool by_input = matched == Side::input;
  if (!topology.has_special_labels(by_input ? Side::output : Side::input)) return;
  const auto own = topology.label(matched);
  const auto other = topology.label(by_input ? Side::output : Side::input);
  for (size_t a = 0; a < own.size(); ++a)
    require(other[a] >= kEpsilon || own[a] == other[a], op,
            "the labels phi and rho must be on the ", by_input ? "input" : "output",
            " side, which is matched, but arc ", a, " has one of them on the other side only");
}

void require_no_failures(std::string_view op, const Topology& topology) {
  for (const Side side : {Side::input, Side::output}) {
    if (!topology.has_special_labels(side)) continue;
    const auto label = topology.label(side);
    const auto a = std::ranges::find_if(label, [](int32_t l) { return l < kEpsilon; });
    fail(op, "the graph must have no failure arcs (phi) and rest arcs (rho), but arc ",
         a - label.begin(), " has the label ", *a == kPhi ? "phi" : "rho",
         "; compose the graph with one that has labels first");
  }
}

void require_ends(std::string_view op, const Topology& topology) {
  for (const Side side : {Side::input, Side::output}) {
    const Failures* failures = find_failures(op, topology, side);
    if (!failures) continue;
    for (int32_t n = 0; n < topology.num_nodes(); ++n)
      require(failures->ends(n) || !failures->can_end(n), op,
              "strings must end at accept nodes, where the next ones begin, but at node ", n,
              " they end by a failure arc (phi)");
  }
}

}  // namespace arcgrad
