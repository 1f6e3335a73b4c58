#include "ops.h"

namespace arcgrad::bindings {

void init_ops(nb::module_& m) {
  init_score_ops(m);
  init_distribution_ops(m);
  init_graph_ops(m);
  init_decoding_ops(m);
  init_rule_ops(m);
  init_editing_ops(m);
  init_reduction_ops(m);
  init_normal_forms(m);
  init_properties(m);
  init_comparison_ops(m);
}

}  // namespace arcgrad::bindings
