#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_limit.h"
#include "arcgrad/algorithms/pair_graph.h"
#include "arcgrad/algorithms/subset_construction.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/remove.h"

namespace arcgrad {

Graph disambiguate(const Graph& graph, Semiring semiring, std::optional<int64_t> max_nodes) {
  constexpr const char* kOp = "disambiguate";
  require_no_failures(kOp, graph.topology());
  const int64_t limit = node_limit(kOp, graph, max_nodes);
  const Graph removed = remove_epsilons(kOp, graph, semiring);
  const LabelCodes codes(removed.topology());
  const PairGraph pairs(kOp, removed.topology(), codes.of_arcs());
  return construct_subsets(
      removed, codes,
      {.op = kOp,
       .semiring = semiring,
       .max_nodes = limit,
       .have_common_future = [&](int32_t p, int32_t q) { return pairs.is_useful(p, q); },
       .is_original = removed.num_nodes() == graph.num_nodes()});
}

}  // namespace arcgrad
