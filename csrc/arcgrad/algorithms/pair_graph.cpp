#include "arcgrad/algorithms/pair_graph.h"

#include <algorithm>

#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

PairGraph::PairGraph(const char* op, const Topology& t, std::span<const uint32_t> codes)
    : ids_(op, t.num_nodes(), t.num_nodes(), 1) {
  const auto dst = t.dst();
  // The arcs that leave each node, by code; code 0 is epsilon.
  Adjacency out = t.out();
  if (out.arcs.empty()) {
    out.arcs.resize(out.node.size());
    for (size_t k = 0; k < out.arcs.size(); ++k) out.arcs[k] = static_cast<int32_t>(k);
  }
  InterruptPoll poll;
  for (int32_t n = 0; n < t.num_nodes(); ++n) {
    poll(1 + out.offset[n + 1] - out.offset[n]);
    std::sort(
        out.arcs.begin() + out.offset[n], out.arcs.begin() + out.offset[n + 1],
        [&](int32_t a, int32_t b) { return std::pair(codes[a], a) < std::pair(codes[b], b); });
  }
  const auto arcs_of = [&](int32_t n) {
    return std::span(out.arcs).subspan(static_cast<size_t>(out.offset[n]),
                                       static_cast<size_t>(out.offset[n + 1] - out.offset[n]));
  };
  for (const int32_t p : t.start())
    for (const int32_t q : t.start()) ids_[ids_.key({p, q})];
  num_starts_ = ids_.size();
  offset_.push_back(0);
  for (int32_t id = 0; id < ids_.size(); ++id) {
    const auto [p, q, filter] = ids_.pair(id);
    const auto add = [&](int32_t a, int32_t b) {
      poll();
      steps_.push_back({id, ids_[ids_.key({a < 0 ? p : dst[a], b < 0 ? q : dst[b]})], a, b});
    };
    const auto left = arcs_of(p), right = arcs_of(q);
    size_t i = 0, j = 0;
    for (; i < left.size() && codes[left[i]] == 0; ++i) add(left[i], -1);
    for (; j < right.size() && codes[right[j]] == 0; ++j) add(-1, right[j]);
    while (i < left.size() && j < right.size()) {
      const uint32_t code = codes[left[i]];
      if (code < codes[right[j]]) {
        ++i;
      } else if (code > codes[right[j]]) {
        ++j;
      } else {
        size_t end = j;
        for (; i < left.size() && codes[left[i]] == code; ++i)
          for (end = j; end < right.size() && codes[right[end]] == code; ++end)
            add(left[i], right[end]);
        j = end;
      }
    }
    require_size(op, "pairs of arcs with the same label", std::ssize(steps_));
    offset_.push_back(steps_.size());
  }
  // Backwards from the pairs of accept nodes.
  Column into(static_cast<size_t>(size()) + 1, 0), from(steps_.size()), stack;
  for (const PairStep& step : steps_) ++into[step.to];
  for (int32_t id = 0, sum = 0; id <= size(); ++id) into[id] = sum += into[id];
  for (const PairStep& step : steps_) from[--into[step.to]] = step.from;
  useful_.assign(static_cast<size_t>(size()), 0);
  const auto reach = [&](int32_t id) {
    if (useful_[id]) return;
    useful_[id] = 1;
    stack.push_back(id);
  };
  for (int32_t id = 0; id < size(); ++id)
    if (t.is_accept(pair(id).first) && t.is_accept(pair(id).second)) reach(id);
  while (!stack.empty()) {
    const int32_t id = stack.back();
    stack.pop_back();
    poll(1 + into[id + 1] - into[id]);
    for (int32_t k = into[id]; k < into[id + 1]; ++k) reach(from[k]);
  }
}

}  // namespace arcgrad
