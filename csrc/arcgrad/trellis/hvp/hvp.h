#pragma once

#include <span>

#include "arcgrad/trellis/kernels/kernel.h"

namespace arcgrad::trellis {

/// An example of which second derivatives are wanted, and the direction in which its emissions
/// move.
struct HvpExample {
  Emissions emissions;
  std::span<const double> moves;  // [frames, labels], or empty
  double scale;
  EmissionsGrad grad;
};

/// The second derivatives of the scores of examples that share a graph, whose arcs move by
/// `arc_moves` (which may be empty): adds `scale` times the derivative of the posteriors along the
/// direction to `grad` of each example and to `arcs` (either may be missing), and puts the
/// derivative of each score into `slopes`. In double whatever the types are.
void add_hvps(const char* op, const Factor& factor, std::span<const double> arc_moves,
              std::span<const HvpExample> examples, std::span<double> arcs,
              std::span<double> slopes);

}  // namespace arcgrad::trellis
