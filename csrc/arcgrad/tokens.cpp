#include "arcgrad/tokens.h"

#include "arcgrad/error.h"

namespace arcgrad {

Graph ctc_graph(std::span<const int32_t> target, int32_t blank, bool calc_grad, DType dtype) {
  const char* op = "ctc_graph";
  require(blank >= 0, op, "the blank must be 0 or more, but it is ", blank);
  require_size(op, "arcs", 6 * static_cast<int64_t>(target.size()) + 1);
  for (size_t i = 0; i < target.size(); ++i)
    if (target[i] < 0 || target[i] == blank)
      fail(op, "a label of the target must be 0 or more and not the blank (", blank,
           "), but label ", i, " is ", target[i]);
  const auto length = static_cast<int32_t>(target.size());
  Arrays arrays;
  arrays.num_nodes = 2 * length + 1;
  arrays.start = {0};
  arrays.accept = {2 * length};
  if (length > 0) arrays.accept.insert(arrays.accept.begin(), 2 * length - 1);
  const auto num_arcs = static_cast<size_t>(5 * length + 1);
  for (auto* column : {&arrays.src, &arrays.dst, &arrays.ilabel}) column->reserve(num_arcs);
  const auto add = [&](int32_t src, int32_t dst, int32_t label) {
    arrays.src.push_back(src);
    arrays.dst.push_back(dst);
    arrays.ilabel.push_back(label);
  };
  for (int32_t n = 0; n < arrays.num_nodes; ++n) {
    const int32_t label = n % 2 == 0 ? blank : target[n / 2];
    if (n % 2 == 1 && n >= 3 && target[n / 2] != target[n / 2 - 1]) add(n - 2, n, label);
    if (n >= 1) add(n - 1, n, label);
    add(n, n, label);
  }
  const auto count = static_cast<int64_t>(arrays.src.size());
  return {std::make_shared<Topology>(std::move(arrays)), Weights::zeros(count, dtype), calc_grad};
}

}  // namespace arcgrad
