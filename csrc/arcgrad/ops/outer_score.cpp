#include "arcgrad/ops.h"
#include "arcgrad/trellis/scores.h"

namespace arcgrad {

Graph outer_score(const std::vector<Graph>& graphs, const std::vector<Graph>& emissions,
                  int32_t window, int32_t stride) {
  return trellis::outer_scores("outer_score", graphs, emissions, {window, stride});
}

}  // namespace arcgrad
