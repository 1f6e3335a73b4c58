#include "arcgrad/gtn/remove.h"

#include <utility>
#include <vector>

#include "arcgrad/autograd/tape.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// A breadth-first search over removed arcs from each node that stays.
// Time: O(nodes that stay * (nodes and arcs that removed arcs lead to)).

namespace arcgrad::gtn {
namespace {

class NoGradientRule final : public Rule {
 public:
  void add(std::span<const Weights>, std::span<Gradient* const>) const override { refuse(); }
  std::vector<Graph> record(std::span<const Graph>, const std::vector<bool>&) const override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw TapeError(
        "backward: a gradient must not flow through gtn's remove, which drops the weights, but the "
        "graph was made by it; use arcgrad.remove, which keeps them, or pass a graph without "
        "calc_grad");
  }
};

}  // namespace

Graph remove(const Graph& graph, int32_t ilabel, int32_t olabel, const ArcOrder& order) {
  const Topology& t = graph.topology();
  const auto in = t.ilabel(), on = t.olabel();
  const auto is_removed = [&](int32_t a) { return in[a] == ilabel && on[a] == olabel; };
  const ArcList list(t, Side::input, order);

  Arrays out;
  std::vector<int32_t> id(static_cast<size_t>(t.num_nodes()), -1);
  for (const int32_t n : t.start()) id[n] = 0;
  for (int32_t a = 0; a < t.num_arcs(); ++a)
    if (!is_removed(a)) id[t.dst()[a]] = 0;
  for (int32_t n = 0; n < t.num_nodes(); ++n) {
    if (id[n] < 0) continue;
    id[n] = out.num_nodes++;
    if (t.is_start(n)) out.start.push_back(id[n]);
  }

  const bool is_acceptor = t.is_acceptor();
  std::vector<int32_t> visited(id.size(), -1), queue;  // by which node each was visited last
  InterruptPoll poll;
  for (int32_t n = 0; n < t.num_nodes(); ++n) {
    if (id[n] < 0) continue;
    queue.assign(1, n);
    visited[n] = n;
    bool is_accept = false;
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t from = queue[head];
      poll(1 + list.begin(from + 1) - list.begin(from));
      is_accept |= t.is_accept(from);
      for (int32_t k = list.begin(from); k < list.begin(from + 1); ++k) {
        const int32_t a = list.arc(k), to = list.dst(a);
        if (!is_removed(a)) {
          out.src.push_back(id[n]);
          out.dst.push_back(id[to]);
          out.ilabel.push_back(in[a]);
          if (!is_acceptor) out.olabel.push_back(on[a]);
        } else if (std::exchange(visited[to], n) != n) {
          queue.push_back(to);
        }
      }
    }
    require_size("remove", "arcs", static_cast<int64_t>(out.src.size()));
    if (is_accept) out.accept.push_back(id[n]);
  }
  if (out.ilabel == out.olabel) out.olabel = Column();
  Weights weights = Weights::zeros(static_cast<int64_t>(out.src.size()), graph.dtype());
  return record("remove", std::make_shared<Topology>(std::move(out)), std::move(weights),
                {&graph, 1}, std::make_unique<NoGradientRule>());
}

}  // namespace arcgrad::gtn
