#pragma once

#include <span>

#include "arcgrad/trellis/kernel.h"

namespace arcgrad::trellis {

/// A direction in which the weights of a product's factors move. Either part may be missing.
struct Direction {
  std::span<const double> emissions;  // [frames, labels]
  std::span<const double> arcs;       // of the graph
};

/// The second derivative of the score of one example: adds `factor` times the derivative of the
/// posteriors along `direction` to `emissions` and `arcs` (either may be missing), and returns the
/// derivative of the score. In double whatever the types are.
double add_curvature(const char* op, const Factor& factor, const Emissions& example,
                     const Direction& direction, double scale, const EmissionsGrad& emissions,
                     std::span<double> arcs);

}  // namespace arcgrad::trellis
