#include "arcgrad/ops.h"
#include "arcgrad/trellis/outer/outer.h"

namespace arcgrad {

Graph outer_score(const std::vector<Graph>& graphs, const std::vector<Graph>& emissions,
                  int32_t window, int32_t stride, int32_t dilation, Semiring semiring) {
  return trellis::outer_scores("outer_score", graphs, emissions, {window, stride, dilation},
                               semiring);
}

}  // namespace arcgrad
