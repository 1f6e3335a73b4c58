#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/lazy_composition.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/algorithms/path_scores.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/ops.h"
#include "arcgrad/ops/lazy_search.h"
#include "arcgrad/ops/search_lattice.h"
#include "arcgrad/ops/token_passing.h"
#include "arcgrad/trellis/emissions.h"

namespace arcgrad {
namespace {

/// Throws if an emission of these labels is NaN or +inf; rho stands for all labels.
template <class T>
void check_readable(std::vector<int32_t> labels, const Graph& emissions,
                    std::span<const T> values) {
  if (std::ranges::all_of(values, [](T w) { return w < std::numeric_limits<T>::infinity(); }))
    return;
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  const trellis::Emissions view = trellis::view_emissions(emissions);
  if (!labels.empty() && labels.front() == kRho) {
    labels.resize(static_cast<size_t>(view.labels));
    std::iota(labels.begin(), labels.end(), 0);
  }
  std::erase_if(labels, [](int32_t l) { return l < 0; });
  for (int32_t t = 0; t < view.frames; ++t) trellis::check_emissions(kOp, labels, view, t);
}

void check_is_emissions(const Graph& emissions) {
  require(is_emissions(emissions), kOp,
          "the emissions must be a dense linear graph, but this graph is not one; make them with "
          "linear_graph");
}

void check(const Pruning& pruning) {
  require(pruning.beam >= 0.0, kOp, "the beam must be 0 or more, but it is ", pruning.beam);
  require(pruning.max_active >= 1, kOp, "max_active must be 1 or more, but it is ",
          pruning.max_active);
  require(pruning.lattice_beam >= 0.0, kOp, "lattice_beam must be 0 or more, but it is ",
          pruning.lattice_beam);
}

}  // namespace

Graph beam_search(const Graph& graph, const Graph& emissions, const Pruning& pruning) {
  check(pruning);
  check_is_emissions(emissions);
  const DType dtype = promote(graph.dtype(), emissions.dtype());
  const Weights weights = graph.weights().cast(dtype), scores = emissions.weights().cast(dtype);
  require_scorable(kOp, graph.topology(), weights);
  const Topology::Dense shape = *emissions.topology().dense();
  return dispatch(dtype, [&](auto kind) {
    using T = decltype(kind);
    const auto weight = weights.view<T>(), emission = scores.view<T>();
    const auto ilabel = graph.topology().ilabel();
    check_readable({ilabel.begin(), ilabel.end()}, emissions, emission);
    BeamSearch<T> search(graph.topology(), weight.data(), emission.data(), pruning);
    const SearchLattice<T>& lattice = search.run(shape.frames, shape.labels);
    return record_lattice(kOp, graph, emissions, lattice, select(lattice, pruning.lattice_beam));
  });
}

Graph lazy_beam_search(const std::vector<Graph>& factors, const Graph& emissions,
                       const Pruning& pruning) {
  check(pruning);
  check_is_emissions(emissions);
  DType dtype = emissions.dtype();
  for (const Graph& factor : factors) {
    dtype = promote(dtype, factor.dtype());
    require_scorable(kOp, expanded(factor.topology()), factor.weights());
  }
  LazyComposition lazy(kOp, factors);
  const Weights scores = emissions.weights().cast(dtype);
  const Topology::Dense shape = *emissions.topology().dense();
  return dispatch(dtype, [&](auto kind) {
    using T = decltype(kind);
    const auto emission = scores.view<T>();
    std::vector<int32_t> labels(static_cast<size_t>(shape.labels));
    std::iota(labels.begin(), labels.end(), 0);
    check_readable(labels, emissions, emission);
    BeamSearch<T> search(lazy, emission.data(), pruning);
    const SearchLattice<T>& lattice = search.run(shape.frames, shape.labels);
    return record_lattice(kOp, lazy.graph(), emissions, lattice,
                          select(lattice, pruning.lattice_beam));
  });
}

std::vector<Graph> beam_search(const std::vector<Graph>& graphs,
                               const std::vector<Graph>& emissions, const Pruning& pruning) {
  check(pruning);
  const size_t size = batch_size(kOp, graphs.size(), emissions.size());
  return map_batch(kOp, size, [&](size_t i) {
    return beam_search(graphs[graphs.size() == 1 ? 0 : i], emissions[emissions.size() == 1 ? 0 : i],
                       pruning);
  });
}

}  // namespace arcgrad
