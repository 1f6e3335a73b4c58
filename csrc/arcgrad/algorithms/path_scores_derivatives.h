#pragma once

#include "arcgrad/algorithms/path_table.h"

namespace arcgrad {

// The derivatives of PathScores, from the local posteriors of a table.
void add_vjp(const PathTable& table, Buffer<double> seed, Weights& grad);
Buffer<double> jvp(const PathTable& table, const Weights& tangent);
void add_vjp_tangent(const PathTable& table, Buffer<double> seed, Buffer<double> seed_tangent,
                     const Weights& tangent, const Buffer<double>& score_tangent, double factor,
                     Weights& grad);

}  // namespace arcgrad
