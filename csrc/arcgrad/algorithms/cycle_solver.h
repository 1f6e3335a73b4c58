#pragma once

// Best paths and convergence inside one strongly connected component, for path_scores_cyclic.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arcgrad/algorithms/sparse_lu.h"

namespace arcgrad {

/// An arc inside a strongly connected component, whose nodes are numbered within it.
struct InnerArc {
  int32_t from, to, slot;
  double weight;
};

/// The best path to each node of a strongly connected component.
struct CyclePaths {
  std::vector<double> score;
  /// The slot of its last arc, and its number of arcs inside the component.
  std::vector<int32_t> slot, length;
};

/// The best paths. `inflow` has for each node the best score of the paths that arrive from outside,
/// `slot` the arc they arrive by; `arcs` are sorted by destination and slot. Ties: the fewest arcs
/// inside, then the first arc. Returns nothing if a cycle is positive, so that there is no best
/// path; a cycle whose weights sum to zero up to rounding is not positive.
std::optional<CyclePaths> best_cycle_paths(std::span<const InnerArc> arcs,
                                           const std::vector<double>& inflow,
                                           const std::vector<int32_t>& slot);

/// The matrix (identity - exp(weight)), with weights relative to the scores of the best paths.
std::vector<SparseLu::MatrixEntry> cycle_matrix(std::span<const InnerArc> arcs,
                                                const std::vector<double>& best);

/// The logarithm of the spectral radius of the matrix of exp(weight).
double log_spectral_radius(std::span<const InnerArc> arcs, size_t num_nodes);

}  // namespace arcgrad
