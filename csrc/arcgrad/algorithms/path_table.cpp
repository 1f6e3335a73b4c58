#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

void FactoredComponent::solve(std::vector<double>& x) const {
  const size_t n = nodes.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) x[i] -= lu[i * n + j] * x[j];
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) x[i] -= lu[i * n + j] * x[j];
    x[i] /= lu[i * n + i];
  }
}

void FactoredComponent::solve_transposed(std::vector<double>& x) const {
  const size_t n = nodes.size();
  for (size_t i = 0; i < n; ++i) {
    x[i] /= lu[i * n + i];
    for (size_t j = i + 1; j < n; ++j) x[j] -= lu[i * n + j] * x[i];
  }
  for (size_t i = n; i-- > 0;)
    for (size_t j = 0; j < i; ++j) x[j] -= lu[i * n + j] * x[i];
}

void FactoredComponent::solve_mass(Buffer<double>& mass) const {
  std::vector<double> x;
  for (size_t i = 0; i < nodes.size(); ++i) x.push_back(mass[nodes[i]] / scale[i]);
  solve(x);
  for (size_t i = 0; i < nodes.size(); ++i) mass[nodes[i]] = scale[i] * x[i];
}

}  // namespace arcgrad
