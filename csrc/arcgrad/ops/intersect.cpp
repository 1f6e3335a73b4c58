#include "arcgrad/ops/intersect.h"

#include <algorithm>

#include "arcgrad/algorithms/compose_topologies.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/ops.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

void require_acceptor(const char* op, const char* which, const Graph& graph) {
  // The product of acceptors is one; there is no need to build it.
  if (graph.product() && graph.product()->graph().topology().is_acceptor()) return;
  const Topology& topology = graph.topology();
  if (topology.is_acceptor()) return;
  const auto ilabel = topology.ilabel(), olabel = topology.olabel();
  const auto a = std::ranges::mismatch(ilabel, olabel).in1 - ilabel.begin();
  fail(op,
       "both graphs must be acceptors (input label equal to output label on every arc), but arc ",
       a, " of the ", which, " graph has labels ", ilabel[a], ":", olabel[a],
       "; use compose for transducers");
}

}  // namespace

Graph intersect_as(const char* op, const Graph& first, const Graph& second) {
  require_acceptor(op, "first", first);
  require_acceptor(op, "second", second);
  return compose_as(op, first, second);
}

Graph intersect(const Graph& first, const Graph& second) {
  return intersect_as("intersect", first, second);
}

}  // namespace arcgrad
