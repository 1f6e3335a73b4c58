// Binds the methods of Graph that read or replace nodes, arcs and weights.

#include <string>

#include "graph.h"

// How the stub names arrays whose dtype is known only at run time.
#define ARCGRAD_INTS "numpy.typing.NDArray[numpy.int32]"
#define ARCGRAD_WEIGHTS "numpy.typing.NDArray[numpy.floating[typing.Any]]"

namespace arcgrad::bindings {
namespace {

/// The owner of a NumPy array that keeps `owner` alive.
template <class T>
nb::capsule keep_alive(std::shared_ptr<T> owner) {
  using Owner = std::shared_ptr<T>;
  return nb::capsule(new Owner(std::move(owner)),
                     [](void* p) noexcept { delete static_cast<Owner*>(p); });
}

using Ints = nb::ndarray<nb::numpy, const int32_t, nb::ndim<1>>;

Ints view_ints(const Graph& graph, std::span<const int32_t> values) {
  return Ints(values.data(), {values.size()}, keep_alive(graph.topology_ptr()));
}

Ints copy_ints(std::vector<int32_t> values) {
  auto owner = std::make_shared<std::vector<int32_t>>(std::move(values));
  return Ints(owner->data(), {owner->size()}, keep_alive(owner));
}

/// A read-only view of the weights, of shape [frames, labels] for linear graphs.
nb::object view_weights(const Graph& graph) {
  materialize(graph);
  const auto& dense = graph.topology().dense();
  Weights weights = graph.raw_weights();
  if (!weights.layout().is_contiguous() && !dense) weights = weights.contiguous();
  if (graph.has_node_weights()) weights.truncate(graph.num_arcs());
  return dispatch(weights.dtype(), [&](auto kind) {
    using Array = nb::ndarray<nb::numpy, const decltype(kind)>;
    std::vector<size_t> shape{static_cast<size_t>(weights.size())};
    std::vector<int64_t> strides{1};
    if (dense) {
      shape = {static_cast<size_t>(dense->frames), static_cast<size_t>(dense->labels)};
      strides = {dense->labels, 1};
      const Layout& layout = weights.layout();
      if (!layout.is_contiguous()) strides = {layout.row_stride, layout.col_stride};
    }
    return nb::cast(Array(weights.data(), shape.size(), shape.data(), keep_alive(weights.owner()),
                          strides.data()),
                    nb::rv_policy::reference);
  });
}

/// The weights of the start or accept nodes as an array of the dtype of the graph.
nb::object copy_node_weights(const std::vector<double>& values, DType dtype) {
  const Weights weights = Weights::from(values, dtype);
  return dispatch(dtype, [&](auto kind) {
    using Array = nb::ndarray<nb::numpy, decltype(kind), nb::ndim<1>>;
    return nb::cast(
        Array(const_cast<void*>(weights.data()), {values.size()}, keep_alive(weights.owner())));
  });
}

nb::object copy_weights(const Graph& graph) { return view_weights(graph).attr("copy")("C"); }

}  // namespace

const Graph& materialize(const Graph& graph) {
  if (is_unbuilt(graph)) {
    const Graph copy = graph.snapshot();
    run_op(copy.product()->op(), [&] { copy.product()->built(); });
  }
  return graph;
}

int32_t check_node(const Graph& graph, const char* op, int64_t node) {
  require(node >= 0 && node < graph.num_nodes(), op, "the node must be one of the ",
          graph.num_nodes(), " nodes of the graph, but it is ", node);
  return static_cast<int32_t>(node);
}

int32_t check_arc(const Graph& graph, const char* op, int64_t arc) {
  require(arc >= 0 && arc < graph.num_arcs(), op, "the arc must be one of the ", graph.num_arcs(),
          " arcs of the graph, but it is ", arc);
  return static_cast<int32_t>(arc);
}

void def_graph_access(nb::class_<Graph>& graph) {
  graph.def("num_nodes", &Graph::num_nodes, "The number of nodes.")
      .def("num_arcs", &Graph::num_arcs, "The number of arcs.")
      .def(
          "num_weights", &Graph::num_weights,
          "The number of weights: one per arc and, with node weights, one per start and per accept "
          "node.")
      .def(
          "num_start", [](const Graph& self) { return self.topology().start().size(); },
          "The number of start nodes.")
      .def(
          "num_accept", [](const Graph& self) { return self.topology().accept().size(); },
          "The number of accept nodes.")
      .def(
          "start", [](const Graph& self) { return view_ints(self, self.topology().start()); },
          "The start nodes, ascending.")
      .def(
          "accept", [](const Graph& self) { return view_ints(self, self.topology().accept()); },
          "The accept nodes, ascending.")
      .def(
          "is_start",
          [](const Graph& self, int64_t node) {
            return self.topology().is_start(check_node(self, "is_start", node));
          },
          "node"_a, "Whether a node is a start node.")
      .def(
          "is_accept",
          [](const Graph& self, int64_t node) {
            return self.topology().is_accept(check_node(self, "is_accept", node));
          },
          "node"_a, "Whether a node is an accept node.")
      .def(
          "is_acyclic", [](const Graph& self) { return materialize(self).topology().is_acyclic(); },
          "Whether the graph has no cycle.")
      .def(
          "is_acceptor", [](const Graph& self) { return self.topology().is_acceptor(); },
          "Whether every arc has the same label on both sides.")
      .def(
          "has_node_weights", [](const Graph& self) { return self.has_node_weights(); },
          "Whether start and accept nodes have weights.")
      .def(
          "start_weights",
          [](const Graph& self) {
            return copy_node_weights(materialize(self).start_weights(), self.dtype());
          },
          nb::sig("def start_weights(self) -> " ARCGRAD_WEIGHTS),
          "A copy of the weights of the start nodes, in the order of :meth:`start`.")
      .def(
          "accept_weights",
          [](const Graph& self) {
            return copy_node_weights(materialize(self).accept_weights(), self.dtype());
          },
          nb::sig("def accept_weights(self) -> " ARCGRAD_WEIGHTS),
          "A copy of the weights of the accept nodes, in the order of :meth:`accept`.");

  graph
      .def(
          "src_nodes",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().src()); },
          "The source node of each arc, as a read-only view.")
      .def(
          "dst_nodes",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().dst()); },
          "The destination node of each arc, as a read-only view.")
      .def(
          "ilabels",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().ilabel()); },
          "The input label of each arc, as a read-only view.")
      .def(
          "olabels",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().olabel()); },
          "The output label of each arc, as a read-only view.")
      .def(
          "arcs",
          [](const Graph& self) {
            const Topology& t = materialize(self).topology();
            return nb::make_tuple(view_ints(self, t.src()), view_ints(self, t.dst()),
                                  view_ints(self, t.ilabel()), view_ints(self, t.olabel()),
                                  view_weights(self).attr("reshape")(-1));
          },
          nb::sig("def arcs(self) -> tuple[" ARCGRAD_INTS ", " ARCGRAD_INTS ", " ARCGRAD_INTS
                  ", " ARCGRAD_INTS ", " ARCGRAD_WEIGHTS "]"),
          "Sources, destinations, input labels, output labels and weights, one entry per arc.")
      .def(
          "src_node",
          [](const Graph& self, int64_t arc) {
            return materialize(self).topology().src()[check_arc(self, "src_node", arc)];
          },
          "arc"_a, "The source node of an arc.")
      .def(
          "dst_node",
          [](const Graph& self, int64_t arc) {
            return materialize(self).topology().dst()[check_arc(self, "dst_node", arc)];
          },
          "arc"_a, "The destination node of an arc.")
      .def(
          "ilabel",
          [](const Graph& self, int64_t arc) {
            return materialize(self).topology().ilabel()[check_arc(self, "ilabel", arc)];
          },
          "arc"_a, "The input label of an arc.")
      .def(
          "olabel",
          [](const Graph& self, int64_t arc) {
            return materialize(self).topology().olabel()[check_arc(self, "olabel", arc)];
          },
          "arc"_a, "The output label of an arc.")
      .def(
          "in_arcs",
          [](const Graph& self, int64_t node) {
            return copy_ints(materialize(self).in_arcs(check_node(self, "in_arcs", node)));
          },
          "node"_a, "The arcs that enter a node, ascending.")
      .def(
          "out_arcs",
          [](const Graph& self, int64_t node) {
            return copy_ints(materialize(self).out_arcs(check_node(self, "out_arcs", node)));
          },
          "node"_a, "The arcs that leave a node, ascending.")
      .def(
          "labels_to_list",
          [](const Graph& self, Flag ilabel) {
            const auto labels =
                materialize(self).topology().label(ilabel ? Side::input : Side::output);
            return std::vector<int32_t>(labels.begin(), labels.end());
          },
          "ilabel"_a = true, "The input labels, or the output labels, one per arc.");

  graph
      .def(
          "weight",
          [](const Graph& self, int64_t arc) {
            return materialize(self).weight(check_arc(self, "weight", arc));
          },
          "arc"_a, "The weight of an arc.")
      .def(
          "set_weight",
          [](Graph& self, int64_t arc, double weight) {
            self.set_weight(check_arc(self, "set_weight", arc), weight);
          },
          "arc"_a, "weight"_a, "Replaces the weight of an arc. Earlier results do not change.")
      .def("weights_view", &view_weights, nb::sig("def weights_view(self) -> " ARCGRAD_WEIGHTS),
           "A read-only view of the weights, of shape ``[frames, labels]`` for linear graphs.")
      .def(
          "weights_to_numpy",
          [](const Graph& self) { return copy_weights(self).attr("reshape")(-1); },
          nb::sig("def weights_to_numpy(self) -> " ARCGRAD_WEIGHTS),
          "A copy of the weights, one per arc.")
      .def(
          "weights_to_list",
          [](const Graph& self) { return materialize(self).weights_to_vector(); },
          "The weights as a list, one per arc.")
      .def(
          "set_weights",
          [](Graph& self, nb::handle weights) {
            self.set_weights(to_weights("set_weights", weights, self.dtype()));
          },
          "weights"_a.none(), nb::sig("def set_weights(self, weights: object) -> None"), R"(
Replaces the weights of the arcs by a copy of an array-like of any shape with one entry per arc.

Earlier results and their gradients do not change: they use the old weights.

>>> import arcgrad as ag
>>> g = ag.linear_graph(2, 2)
>>> g.set_weights([[1, 2], [3, 4]])
>>> g.weights_to_list()
[1.0, 2.0, 3.0, 4.0]
)")
      .def("item", &Graph::item, "The weight of the only arc, for example of a score.")
      .def_prop_ro(
          "dtype", [](const Graph& self) { return from_dtype(self.dtype()); },
          nb::sig("def dtype(self) -> numpy.dtype[numpy.floating[typing.Any]]"),
          "The NumPy dtype of the weights.");
}

}  // namespace arcgrad::bindings
