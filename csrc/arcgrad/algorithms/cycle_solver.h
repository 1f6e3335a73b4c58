#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace arcgrad {

/// An arc inside a strongly connected component, between nodes numbered within it.
struct Link {
  int32_t from, to, slot;
  double weight;
};

/// The best path to each node of a strongly connected component.
struct CyclePaths {
  std::vector<double> score;
  /// Of the arc by which it arrives, and its number of arcs inside the component.
  std::vector<int32_t> slot, length;
};

/// The best paths, given for each node the best score with which paths arrive from outside and the
/// slot of the arc they take. Of paths that are equally good, one with the fewest links, and then
/// the first; `links` come by destination and ascending slot. Nothing if a cycle is positive, so
/// that there is no best path; one whose weights sum to zero but for rounding is not.
///
/// Takes time in proportion to nodes and links in most cases, and to their product at worst.
std::optional<CyclePaths> best_cycle_paths(std::span<const Link> links,
                                           const std::vector<double>& inflow,
                                           const std::vector<int32_t>& slot);

/// The logarithm of the spectral radius of exp(weights) between `num_nodes` nodes.
double log_spectral_radius(std::span<const Link> links, size_t num_nodes);

}  // namespace arcgrad
