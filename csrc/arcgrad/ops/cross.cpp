#include <utility>

#include "arcgrad/algorithms/compose_topologies.h"
#include "arcgrad/algorithms/difference.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"

// The composition of the first graph without output labels and the second without input labels.

namespace arcgrad {
namespace {

/// An acceptor with epsilon on one side of each arc.
Topology without(const Topology& topology, Side side) {
  Arrays arrays = topology.arrays();
  arrays.olabel = arrays.ilabel;
  (side == Side::input ? arrays.ilabel : arrays.olabel).assign(arrays.src.size(), kEpsilon);
  return Topology(std::move(arrays));
}

}  // namespace

Graph cross(const Graph& first, const Graph& second, std::optional<int64_t> max_arcs) {
  constexpr const char* kOp = "cross";
  require_acceptor(kOp, "the first graph", first);
  require_acceptor(kOp, "the second graph", second);
  Composed composed = compose_topologies(kOp, without(first.topology(), Side::output),
                                         without(second.topology(), Side::input), max_arcs);
  composed.arrays.symbols = {first.topology().symbols().input, second.topology().symbols().output};
  return record_moves(kOp, std::make_shared<Topology>(std::move(composed.arrays)),
                      {{first, std::move(composed.first)}, {second, std::move(composed.second)}});
}

}  // namespace arcgrad
