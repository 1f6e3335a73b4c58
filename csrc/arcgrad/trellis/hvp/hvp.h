#pragma once

// Hessian-vector products of forward scores.

#include <span>

#include "arcgrad/trellis/kernels/kernel.h"

namespace arcgrad::trellis {

/// The emissions of an example with a tangent, and where its Hessian-vector product goes.
struct HvpExample {
  Emissions emissions;
  std::span<const double> tangents;  // [frames, labels], or empty for zeros
  double scale;
  EmissionsGrad grad;
};

/// Hessian-vector products of the scores of examples with the same graph; `arc_tangents` is empty
/// for zeros. Adds `scale` times the derivative of the posteriors along the tangents to `grad` of
/// each example and to `arcs`, unless these are empty. Sets `jvps` to the derivatives of the
/// scores. All computations are in double.
void add_hvps(const char* op, const Factor& factor, std::span<const double> arc_tangents,
              std::span<const HvpExample> examples, std::span<double> arcs, std::span<double> jvps);

}  // namespace arcgrad::trellis
