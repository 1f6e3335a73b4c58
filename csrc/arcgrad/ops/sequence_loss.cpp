#include "arcgrad/ops.h"
#include "arcgrad/trellis/scores.h"

namespace arcgrad {

Graph sequence_loss(const Graph& graph, const Graph& emissions, bool normalize) {
  return trellis::sequence_losses({graph}, {emissions}, normalize)[0];
}

std::vector<Graph> sequence_loss(const std::vector<Graph>& graphs,
                                 const std::vector<Graph>& emissions, bool normalize) {
  return trellis::sequence_losses(graphs, emissions, normalize);
}

}  // namespace arcgrad
