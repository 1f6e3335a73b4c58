#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

void FactoredComponent::solve_mass(Buffer<double>& mass) const {
  std::vector<double> x;
  for (size_t i = 0; i < nodes.size(); ++i) x.push_back(mass[nodes[i]] / scale[i]);
  lu.solve(x);
  for (size_t i = 0; i < nodes.size(); ++i) mass[nodes[i]] = scale[i] * x[i];
}

}  // namespace arcgrad
