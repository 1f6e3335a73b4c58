// Binds external arrays: leaves over tensors and their gradients, for the bridges to torch and
// other libraries. These functions are private; they take addresses and shapes that the bridge has
// checked.

#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "arcgrad/autograd/backward.h"
#include "common.h"

namespace arcgrad::bindings {
namespace {

/// An array of another library, and the Python object that keeps it alive.
struct Memory {
  std::shared_ptr<const void> owner;
  const char* data;
  DType dtype;

  Memory(nb::handle object, uintptr_t address, bool is_double)
      : owner(hold(object)),
        data(reinterpret_cast<const char*>(address)),
        dtype(is_double ? DType::float64 : DType::float32) {}

  Weights borrow(int64_t offset, Layout layout) const {
    if (layout.rows * layout.cols == 0) return Weights::zeros(0, dtype);
    return Weights::borrow(owner, data + offset * (dtype == DType::float64 ? 8 : 4), layout, dtype);
  }
};

using Shape = std::array<int64_t, 3>;

std::vector<Graph> borrow_emissions(nb::handle owner, uintptr_t address, bool is_double,
                                    Shape shape, Shape strides, nb::handle lengths,
                                    bool calc_grad) {
  const char* op = "emissions";
  const Memory memory(owner, address, is_double);
  const auto [batch, frames, labels] = shape;
  require_size(op, "labels", labels);
  require_size(op, "nodes", frames + 1);
  require_size(op, "arcs", frames * labels);
  auto source = std::make_shared<ExternalArray>();
  source->owner = memory.owner;
  source->dtype = memory.dtype;
  source->rows = frames;
  source->cols = labels;
  // The gradient is time-major if the array is, else batch-major.
  const bool is_time_major = batch > 1 && strides[2] == 1 && strides[0] == labels;
  source->leaf_stride = is_time_major ? labels : frames * labels;
  source->row_stride = is_time_major ? batch * labels : labels;
  const Column counts = to_lengths(op, lengths, batch, frames);
  std::vector<Weights> weights;
  weights.reserve(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    const auto count = static_cast<int32_t>(counts.empty() ? frames : counts[b]);
    source->leaves.push_back(std::make_shared<Topology>(count, static_cast<int32_t>(labels)));
    weights.push_back(memory.borrow(b * strides[0], {count, labels, strides[1], strides[2]}));
  }
  return make_leaves(source, weights, calc_grad);
}

std::vector<Graph> borrow_graphs(const Graph& graph, nb::handle owner, uintptr_t address,
                                 bool is_double, int64_t batch, std::array<int64_t, 2> strides,
                                 bool calc_grad) {
  const Memory memory(owner, address, is_double);
  auto source = std::make_shared<ExternalArray>();
  source->owner = memory.owner;
  source->dtype = memory.dtype;
  const TopologyPtr& topology = graph.topology_ptr();
  const auto& dense = topology->dense();
  source->rows = dense ? dense->frames : 1;
  source->cols = dense ? dense->labels : topology->num_weights();
  source->leaf_stride = topology->num_weights();
  source->row_stride = source->cols;
  source->leaves.assign(static_cast<size_t>(batch), topology);
  std::vector<Weights> weights;
  for (int64_t b = 0; b < batch; ++b)
    weights.push_back(
        memory.borrow(b * strides[0], {topology->num_weights(), 1, strides[1], 1}).contiguous());
  return make_leaves(source, weights, calc_grad);
}

std::vector<Graph> borrow_parts(const std::vector<Graph>& graphs, nb::handle owner,
                                uintptr_t address, bool is_double, int64_t stride, bool calc_grad) {
  const Memory memory(owner, address, is_double);
  auto source = std::make_shared<ExternalArray>();
  source->owner = memory.owner;
  source->dtype = memory.dtype;
  source->rows = 1;
  source->bounds.push_back(0);
  std::vector<Weights> weights;
  for (const Graph& graph : graphs) {
    // The gradient of a dense linear graph is a matrix, but here leaves are parts of one row.
    require(!graph.topology().dense(), "graph",
            "graphs of a list must not be dense and linear, but element ", weights.size(), " is");
    const int64_t begin = source->bounds.back(), count = graph.num_weights();
    source->leaves.push_back(graph.topology_ptr());
    source->bounds.push_back(begin + count);
    weights.push_back(memory.borrow(begin * stride, {count, 1, stride, 1}).contiguous());
  }
  return make_leaves(source, weights, calc_grad);
}

using Factors = nb::ndarray<const double, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

/// The weights of all graphs, concatenated.
nb::object read_weights(const std::vector<Graph>& graphs, bool is_double) {
  int64_t size = 0;
  for (const Graph& graph : graphs) size += graph.num_weights();
  return dispatch(is_double ? DType::float64 : DType::float32, [&](auto kind) {
    using T = decltype(kind);
    auto* const buffer = new T[static_cast<size_t>(std::max<int64_t>(size, 1))];
    nb::capsule owner(buffer, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    T* to = buffer;
    for (const Graph& graph : graphs) {
      const Weights weights = graph.weights();
      dispatch(weights.dtype(), [&](auto from) {
        for (auto w : weights.view<decltype(from)>()) *to++ = static_cast<T>(w);
      });
    }
    return nb::cast(nb::ndarray<nb::numpy, T>(buffer, {static_cast<size_t>(size)}, owner));
  });
}

/// An array [B] of losses, or with `factors` a scalar: the sum of factor * loss.
nb::object reduce_losses(const std::vector<Graph>& graphs, const std::optional<Factors>& factors,
                         bool zero_infinity, bool is_double) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t count = graphs.size();
  require(!factors || factors->size() == count, "SequenceLoss",
          "there must be emissions for each target, ", factors ? factors->size() : 0,
          " in all, but there are losses of ", count);
  return dispatch(is_double ? DType::float64 : DType::float32, [&](auto kind) {
    using T = decltype(kind);
    auto* const buffer = new T[std::max<size_t>(count, 1)];
    nb::capsule owner(buffer, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    double sum = 0.0;
    for (size_t i = 0; i < count; ++i) {
      double loss = graphs[i].item();
      // NaN is infinity - infinity: neither the normalizer nor the alignments have a path.
      if (!(loss < kInfinity)) loss = zero_infinity ? 0.0 : kInfinity;
      if (factors)
        sum += (*factors)(i)*loss;
      else
        buffer[i] = static_cast<T>(loss);
    }
    if (factors) buffer[0] = static_cast<T>(sum);
    return nb::cast(nb::ndarray<nb::numpy, T>(buffer, factors ? 0 : 1, &count, owner));
  });
}

/// The roots of a backward pass, without scores that are not finite: their gradients are zero.
struct Roots {
  std::vector<Graph> graphs, seeds;
  void add(const Graph& graph, const Graph& seed) {
    const bool is_scalar = !graph.product() && graph.topology_ptr() == scalar_topology();
    if (!graph.calc_grad() || (is_scalar && !std::isfinite(graph.item()))) return;
    graphs.push_back(graph);
    seeds.push_back(seed);
  }
};

using Sources = std::vector<std::shared_ptr<const ExternalArray>>;

nb::list source_gradients(const std::vector<Graph>& graphs, nb::handle seeds,
                          const Sources& sources) {
  const Weights all = to_weights("grad", seeds, DType::float64);
  const std::span<const double> values = all.view<double>();
  Roots roots;
  size_t at = 0;
  for (const Graph& graph : snapshots(graphs)) {
    const auto count = static_cast<size_t>(graph.num_weights());
    roots.add(graph, Graph(graph.topology_ptr(), Weights::from(values.subspan(at, count))));
    at += count;
  }
  std::vector<Weights> gradients;
  {
    nb::gil_scoped_release release;
    gradients = grad(roots.graphs, sources, roots.seeds);
  }
  nb::list out;
  for (size_t k = 0; k < sources.size(); ++k) {
    const ExternalArray& source = *sources[k];
    size_t shape[] = {source.leaves.size(), static_cast<size_t>(source.rows),
                      static_cast<size_t>(source.cols)};
    int64_t strides[] = {source.leaf_stride, source.row_stride, 1};
    if (!source.bounds.empty()) {
      const int64_t size = source.size();
      std::ranges::copy(std::array{size_t{1}, size_t{1}, static_cast<size_t>(size)}, shape);
      std::ranges::copy(std::array{size, size, int64_t{1}}, strides);
    }
    using Owner = std::shared_ptr<const void>;
    nb::capsule owner(new Owner(gradients[k].owner()),
                      [](void* p) noexcept { delete static_cast<Owner*>(p); });
    void* const data = const_cast<void*>(gradients[k].data());
    dispatch(source.dtype, [&](auto kind) {
      out.append(nb::cast(nb::ndarray<nb::numpy, decltype(kind)>(data, 3, shape, owner, strides)));
    });
  }
  return out;
}

}  // namespace

void init_external_array(nb::module_& m) {
  nb::class_<ExternalArray>(m, "ExternalArray",
                            "An array of another library from which leaves borrow their weights.")
      .def_prop_ro(
          "owner",
          [](const ExternalArray& self) {
            return *static_cast<const nb::object*>(self.owner.get());
          },
          "The object that the leaves were made with.");
  m.def("borrow_emissions", &borrow_emissions, "owner"_a, "address"_a, "is_double"_a, "shape"_a,
        "strides"_a, "lengths"_a.none(), "calc_grad"_a,
        "For bridges: dense linear graphs over an array [batch, frames, labels], not copied.");
  m.def("borrow_graphs", &borrow_graphs, "graph"_a, "owner"_a, "address"_a, "is_double"_a,
        "batch"_a, "strides"_a, "calc_grad"_a,
        "For bridges: copies of a graph with the weights of an array [batch, weights].");
  m.def("borrow_parts", &borrow_parts, "graphs"_a, "owner"_a, "address"_a, "is_double"_a,
        "stride"_a, "calc_grad"_a,
        "For bridges: copies of graphs with consecutive parts of one array as weights.");
  m.def("read_weights", &read_weights, "graphs"_a, "is_double"_a,
        "For bridges: all weights of all graphs, concatenated.");
  m.def("reduce_losses", &reduce_losses, "graphs"_a, "factors"_a.none(), "zero_infinity"_a,
        "is_double"_a, "For bridges: an array of losses, or their weighted sum.");
  m.def(
      "are_scores",
      [](const std::vector<Graph>& graphs) {
        return std::ranges::all_of(graphs, [](const Graph& graph) {
          return !graph.product() && graph.topology_ptr() == scalar_topology();
        });
      },
      "graphs"_a, "For bridges: whether every graph is a scalar graph.");
  m.def(
      "find_sources", [](const std::vector<Graph>& graphs) { return find_sources(graphs); },
      "graphs"_a, "For bridges: the external arrays that graphs depend on.");
  m.def("source_gradients", &source_gradients, "graphs"_a, "seeds"_a, "sources"_a,
        "For bridges: a gradient [leaves, rows, columns] for each external array.");
  m.def(
      "record_source_gradients",
      [](const std::vector<Graph>& graphs, const std::vector<Graph>& seeds,
         const Sources& sources) {
        Roots roots;
        for (size_t i = 0; i < graphs.size(); ++i)
          roots.add(graphs[i].snapshot(), seeds[i].snapshot());
        nb::gil_scoped_release release;
        return record_grad(roots.graphs, sources, roots.seeds);
      },
      "graphs"_a, "seeds"_a, "sources"_a,
      "For bridges: the gradients as graphs on the tape, one for each leaf.");
}

}  // namespace arcgrad::bindings
