#include "arcgrad/core/graph.h"

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <array>

#include "common.h"

// How the stub names arrays whose dtype is known at run time only.
#define ARCGRAD_INTS "numpy.typing.NDArray[numpy.int32]"
#define ARCGRAD_WEIGHTS "numpy.typing.NDArray[numpy.floating[typing.Any]]"

namespace arcgrad::bindings {
namespace {

/// An object that keeps `owner` alive as long as an array needs it.
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

bool is_unbuilt(const Graph& graph) { return graph.product() && !graph.product()->is_built(); }

/// The graph, with a deferred product built while other threads of Python run.
const Graph& materialize(const Graph& graph) {
  if (is_unbuilt(graph)) {
    const Graph copy = graph.snapshot();
    nb::gil_scoped_release release;
    copy.product()->built();
  }
  return graph;
}

/// The weights without a copy, read-only; [frames, labels] for linear graphs.
nb::object view_weights(const Graph& graph) {
  materialize(graph);
  const auto& dense = graph.topology().dense();
  Weights weights = graph.raw_weights();
  if (!weights.layout().is_contiguous() && !dense) weights = weights.contiguous();
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

nb::object copy_weights(const Graph& graph) { return view_weights(graph).attr("copy")("C"); }

/// An arc as people write it: "1:2/0.5", or "1/0.5" if both labels are the same.
std::string describe_arc(const Topology& t, const Weights& weights, int32_t a) {
  auto name = [](int32_t label) { return label == kEpsilon ? "ε" : std::to_string(label); };
  std::string label = name(t.ilabel()[a]);
  if (!t.is_acceptor()) label.append(":").append(name(t.olabel()[a]));
  return text("  ", t.src()[a], " -> ", t.dst()[a], "  ", label, "/", weights[a]);
}

std::string describe_nodes(std::span<const int32_t> nodes) {
  std::string out = "[";
  for (size_t i = 0; i < std::min<size_t>(nodes.size(), 8); ++i)
    out += (i ? ", " : "") + std::to_string(nodes[i]);
  return out + (nodes.size() > 8 ? ", ...]" : "]");
}

/// A product that was put off is described by its factors; counting its arcs would build them.
std::string describe_product(const Graph& graph) {
  const Product& product = *graph.product();
  const auto size = [](const Graph& factor) {
    const Topology& t = factor.topology();
    if (t.dense()) return text("linear ", t.dense()->frames, " x ", t.dense()->labels);
    return text(t.num_nodes(), t.num_nodes() == 1 ? " node, " : " nodes, ", t.num_arcs(),
                t.num_arcs() == 1 ? " arc" : " arcs");
  };
  return text("Graph(product of (", size(product.first()), ") and (", size(product.second()),
              "), not built, ", graph.dtype() == DType::float32 ? "float32" : "float64",
              graph.calc_grad() ? ", calc_grad)" : ")");
}

std::string describe(const Graph& graph) {
  constexpr int32_t kShown = 10;
  if (is_unbuilt(graph)) return describe_product(graph);
  const Topology& t = materialize(graph).topology();
  std::string out = text("Graph(", t.num_nodes(), t.num_nodes() == 1 ? " node, " : " nodes, ",
                         t.num_arcs(), t.num_arcs() == 1 ? " arc, " : " arcs, ", "start ",
                         describe_nodes(t.start()), ", accept ", describe_nodes(t.accept()), ", ",
                         graph.dtype() == DType::float32 ? "float32" : "float64");
  if (t.dense()) out += text(", linear ", t.dense()->frames, " x ", t.dense()->labels);
  if (graph.product()) out += ", product";
  if (graph.calc_grad()) out += ", calc_grad";
  out += ")";
  // A large linear graph is known by its shape; writing out its arcs would make them.
  if (t.dense() && t.num_arcs() > kShown) return out;
  for (int32_t a = 0; a < std::min(t.num_arcs(), kShown); ++a)
    out.append("\n").append(describe_arc(t, graph.raw_weights(), a));
  if (t.num_arcs() > kShown) out += text("\n  ... ", t.num_arcs() - kShown, " more");
  return out;
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

Ints arcs_of(const Adjacency& adjacency, int32_t node) {
  std::vector<int32_t> arcs;
  for (int32_t k = adjacency.offset[node]; k < adjacency.offset[node + 1]; ++k)
    arcs.push_back(adjacency.arc(k));
  return copy_ints(std::move(arcs));
}

Graph from_arrays(nb::handle src, nb::handle dst, nb::handle ilabel, nb::handle olabel,
                  nb::handle weight, nb::handle start, nb::handle accept,
                  std::optional<int64_t> num_nodes, nb::handle dtype, Flag calc_grad) {
  const char* op = "from_arrays";
  Arrays arrays;
  arrays.src = to_ints(op, "src", src);
  arrays.dst = to_ints(op, "dst", dst);
  arrays.ilabel = to_ints(op, "ilabel", ilabel);
  const size_t count = arrays.src.size();
  if (!olabel.is_none()) {
    arrays.olabel = to_ints(op, "olabel", olabel);
    require(arrays.olabel.size() == count, op, "olabel must have one entry per arc, ", count,
            " in all, but it has ", arrays.olabel.size());
  }
  arrays.start = to_ints(op, "start", start);
  arrays.accept = to_ints(op, "accept", accept);
  std::optional<DType> kind;
  if (!dtype.is_none()) kind = to_dtype(op, dtype);
  Weights weights = weight.is_none()
                        ? Weights::zeros(static_cast<int64_t>(count), kind.value_or(DType::float32))
                        : to_weights(op, weight, kind);
  if (num_nodes) {
    arrays.num_nodes = to_int32(op, "num_nodes", *num_nodes);
  } else {
    int32_t last = -1;
    for (const auto* nodes : {&arrays.src, &arrays.dst, &arrays.start, &arrays.accept})
      for (int32_t n : *nodes) last = std::max(last, n);
    require_size(op, "nodes", int64_t{last} + 1);
    arrays.num_nodes = last + 1;
  }
  return Graph::from_arrays(std::move(arrays), std::move(weights), calc_grad);
}

Graph make_linear(int64_t frames, int64_t labels, nb::handle weights, Flag calc_grad,
                  nb::handle dtype, Flag copy) {
  const char* op = "linear_graph";
  std::optional<DType> kind;
  if (!dtype.is_none()) kind = to_dtype(op, dtype);
  const int32_t t = to_int32(op, "the number of frames", frames);
  const int32_t c = to_int32(op, "the number of labels", labels);
  if (weights.is_none()) {
    require(copy, op, "copy=False needs weights to borrow, but there are none");
    return linear_graph(t, c, calc_grad, kind.value_or(DType::float32));
  }
  require(t >= 0 && c >= 0, op, "the numbers of frames and labels must be 0 or more, but they are ",
          t, " and ", c);
  require_size(op, "arcs", int64_t{t} * c);
  if (!copy && !kind)
    if (std::optional<Weights> matrix = try_borrow_matrix(weights);
        matrix && matrix->layout().rows == t && matrix->layout().cols == c)
      return {std::make_shared<Topology>(t, c), std::move(*matrix), calc_grad};
  Weights given = copy ? to_weights(op, weights, kind) : borrow_weights(op, weights);
  require(given.size() == int64_t{t} * c, op, "the weights must have ", frames, " x ", labels,
          " entries, but they have ", given.size());
  const auto shape = nb::cast<nb::tuple>(nb::module_::import_("numpy").attr("shape")(weights));
  require(shape.size() == 1 || shape.equal(nb::make_tuple(t, c)), op,
          "the weights must have the shape (", t, ", ", c,
          "), or one dimension, but their shape is ", show(shape));
  require(copy || !kind || *kind == given.dtype(), op,
          "weights that are not copied keep their dtype, but another one was asked for");
  return {std::make_shared<Topology>(t, c), std::move(given), calc_grad};
}

std::vector<Graph> make_linears(nb::handle weights, nb::handle lengths, Flag calc_grad,
                                nb::handle dtype, Flag copy) {
  const char* op = "linear_graphs";
  std::optional<DType> kind;
  if (!dtype.is_none()) kind = to_dtype(op, dtype);
  nb::object array = nb::borrow(weights);
  nb::ndarray<nb::ro, nb::device::cpu> view;
  if (!nb::ndarray_check(array) || !nb::try_cast(array, view, false)) {
    array = as_array(op, "weights", weights);
    if (!nb::try_cast(array, view, false)) {
      to_weights(op, array, kind);  // throws unless it holds numbers, such as of foreign byte order
      require(copy, op, "weights that are not copied must be float32 or float64, but they are ",
              show(array.attr("dtype")));
      array = array.attr("astype")("float64");
      view = nb::cast<decltype(view)>(array);
    }
  }
  if (view.ndim() != 3)
    fail(op, "the weights must have the shape (examples, frames, labels), but their shape is ",
         show(array.attr("shape")));
  const auto batch = static_cast<int64_t>(view.shape(0));
  const auto frames = static_cast<int64_t>(view.shape(1));
  const auto labels = static_cast<int64_t>(view.shape(2));
  require_size(op, "labels", labels);
  require_size(op, "nodes", frames + 1);
  require_size(op, "arcs", frames * labels);
  const Column counts = to_lengths(op, lengths, batch, frames);
  // One copy of all, or none, of which each graph borrows its part.
  std::array<int64_t, 3> strides{frames * labels, labels, 1};
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  DType type;
  if (copy) {
    const Weights all = to_weights(op, weights, kind);
    owner = all.owner();
    data = static_cast<const char*>(all.data());
    type = all.dtype();
  } else {
    const bool is_double = view.dtype() == nb::dtype<double>();
    if (!is_double && view.dtype() != nb::dtype<float>())
      fail(op, "weights that are not copied must be float32 or float64, but they are ",
           show(array.attr("dtype")));
    type = is_double ? DType::float64 : DType::float32;
    require(!kind || *kind == type, op,
            "weights that are not copied keep their dtype, but another one was asked for");
    require(reinterpret_cast<uintptr_t>(view.data()) % view.itemsize() == 0, op,
            "weights that are not copied must be aligned in memory, but they are not");
    strides = {view.stride(0), view.stride(1), view.stride(2)};
    owner = hold(array);
    data = static_cast<const char*>(view.data());
  }
  const int64_t size = type == DType::float64 ? sizeof(double) : sizeof(float);
  std::vector<Graph> out;
  out.reserve(static_cast<size_t>(batch));
  for (int64_t i = 0; i < batch; ++i) {
    const auto count = static_cast<int32_t>(counts.empty() ? frames : counts[i]);
    Weights own = count * labels == 0
                      ? Weights::zeros(0, type)
                      : Weights::borrow(owner, data + i * strides[0] * size,
                                        {count, labels, strides[1], strides[2]}, type);
    out.emplace_back(std::make_shared<Topology>(count, static_cast<int32_t>(labels)),
                     std::move(own), calc_grad);
  }
  return out;
}

}  // namespace

void init_graph(nb::module_& m) {
  nb::class_<Graph> graph(m, "Graph", R"(
A weighted finite-state transducer.

Nodes and arcs are numbered from 0 in the order they are added. An arc carries an input label, an
output label (whole numbers from 0, or :data:`epsilon`) and a weight; equal labels on every arc make
an acceptor. Weights are log-domain scores: larger is better, ``-inf`` is impossible. There may be
several start and accept nodes, parallel arcs, self-loops and cycles.

Args:
    calc_grad: Whether :func:`backward` computes a gradient for this graph.
    dtype: ``"float32"`` or ``"float64"``.

>>> import arcgrad as ag
>>> g = ag.Graph()
>>> g.add_node(start=True)
0
>>> g.add_node(accept=True)
1
>>> g.add_arc(0, 1, 2, 3, weight=0.5)
0
>>> g
Graph(2 nodes, 1 arc, start [0], accept [1], float32, calc_grad)
  0 -> 1  2:3/0.5
)");
  graph.def(
      "__init__",
      [](Graph* self, Flag calc_grad, nb::object dtype) {
        new (self) Graph(calc_grad, to_dtype("Graph", dtype));
      },
      "calc_grad"_a = true, nb::kw_only(), "dtype"_a = "float32");
  graph.def(nb::init<const Graph&>(), "graph"_a, "Another handle on the same graph.");
  graph.def_static("from_arrays", &from_arrays, "src"_a.none(), "dst"_a.none(), "ilabel"_a.none(),
                   "olabel"_a = nb::none(), "weight"_a = nb::none(), nb::kw_only(),
                   "start"_a.none(), "accept"_a.none(), "num_nodes"_a = nb::none(),
                   "dtype"_a = nb::none(), "calc_grad"_a = true,
                   nb::sig("def from_arrays(src: object, dst: object, ilabel: object, "
                           "olabel: object | None = None, weight: object | None = None, *, "
                           "start: object, accept: object, num_nodes: int | None = None, "
                           "dtype: object | None = None, calc_grad: bool = True) -> Graph"),
                   R"(
A graph from arrays with one entry per arc.

Args:
    src: Node each arc leaves.
    dst: Node each arc enters.
    ilabel: Input labels.
    olabel: Output labels; by default the input labels, which makes an acceptor.
    weight: Weights; by default 0.
    start: Ids of the start nodes.
    accept: Ids of the accept nodes.
    num_nodes: By default one more than the largest id.
    dtype: By default float64 if the weights are floats of more than 32 bits, else float32.
    calc_grad: Whether backward computes a gradient for this graph.

Raises:
    ValueError: If the lengths differ, a node or label is out of range.

>>> import arcgrad as ag
>>> ag.Graph.from_arrays([0, 0], [1, 1], [4, 5], weight=[0.5, 1.5], start=[0], accept=[1])
Graph(2 nodes, 2 arcs, start [0], accept [1], float32, calc_grad)
  0 -> 1  4/0.5
  0 -> 1  5/1.5
)");

  graph
      .def(
          "add_node",
          [](Graph& self, Flag start, Flag accept) { return self.add_node(start, accept); },
          "start"_a = false, "accept"_a = false, "Adds a node and returns its id.")
      .def(
          "add_arc",
          [](Graph& self, int64_t src, int64_t dst, int64_t ilabel, std::optional<int64_t> olabel,
             double weight) {
            const char* op = "add_arc";
            // One by one: the order of arguments of a call is that of the compiler.
            const int32_t from = to_int32(op, "the source node", src);
            const int32_t to = to_int32(op, "the destination node", dst);
            const int32_t in = to_int32(op, "the input label", ilabel);
            const int32_t out = olabel ? to_int32(op, "the output label", *olabel) : in;
            return self.add_arc(from, to, in, out, weight);
          },
          "src"_a, "dst"_a, "ilabel"_a, "olabel"_a = nb::none(), "weight"_a = 0.0,
          "Adds an arc and returns its id. Without ``olabel`` both labels are ``ilabel``.")
      .def(
          "make_start",
          [](Graph& self, int64_t node) { self.make_start(check_node(self, "make_start", node)); },
          "node"_a, "Makes a node a start node.")
      .def(
          "make_accept",
          [](Graph& self, int64_t node) {
            self.make_accept(check_node(self, "make_accept", node));
          },
          "node"_a, "Makes a node an accept node.");

  graph.def("num_nodes", &Graph::num_nodes, "The number of nodes.")
      .def("num_arcs", &Graph::num_arcs, "The number of arcs.")
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
          "Whether every arc has the same label on both sides.");

  graph
      .def(
          "src_nodes",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().src()); },
          "The node each arc leaves: a read-only view.")
      .def(
          "dst_nodes",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().dst()); },
          "The node each arc enters: a read-only view.")
      .def(
          "ilabels",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().ilabel()); },
          "The input label of each arc: a read-only view.")
      .def(
          "olabels",
          [](const Graph& self) { return view_ints(self, materialize(self).topology().olabel()); },
          "The output label of each arc: a read-only view.")
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
          "arc"_a, "The node an arc leaves.")
      .def(
          "dst_node",
          [](const Graph& self, int64_t arc) {
            return materialize(self).topology().dst()[check_arc(self, "dst_node", arc)];
          },
          "arc"_a, "The node an arc enters.")
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
            return arcs_of(materialize(self).topology().in(), check_node(self, "in_arcs", node));
          },
          "node"_a, "The arcs that enter a node, ascending.")
      .def(
          "out_arcs",
          [](const Graph& self, int64_t node) {
            return arcs_of(materialize(self).topology().out(), check_node(self, "out_arcs", node));
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
          "arc"_a, "weight"_a, "Replaces the weight of an arc. Earlier results stay as they are.")
      .def("weights_view", &view_weights, nb::sig("def weights_view(self) -> " ARCGRAD_WEIGHTS),
           "The weights without a copy, read-only; ``[frames, labels]`` for linear graphs.")
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
Replaces the weights by a copy of an array-like of any shape with one entry per arc.

Earlier results keep the weights they were computed with, and so do their gradients.

>>> import arcgrad as ag
>>> g = ag.linear_graph(2, 2)
>>> g.set_weights([[1, 2], [3, 4]])
>>> g.weights_to_list()
[1.0, 2.0, 3.0, 4.0]
)")
      .def("item", &Graph::item, "The weight of the only arc, such as that of a score.")
      .def_prop_ro(
          "dtype", [](const Graph& self) { return from_dtype(self.dtype()); },
          nb::sig("def dtype(self) -> numpy.dtype[numpy.floating[typing.Any]]"),
          "The NumPy dtype of the weights.");

  graph
      .def_prop_rw(
          "calc_grad", &Graph::calc_grad,
          [](Graph& self, nb::handle value) {
            self.set_calc_grad(to_flag("Graph", "calc_grad", value));
          },
          nb::for_setter("value"_a.none()),
          nb::for_setter(nb::sig("def calc_grad(self, value: bool, /) -> None")),
          "Whether backward computes a gradient for this graph. Switching it off forgets "
          "the gradient and the operation that made the graph.")
      .def("grad", &Graph::grad,
           "The gradient: a graph with the same topology whose weights are the derivatives.")
      .def("is_grad_available", &Graph::is_grad_available, "Whether there is a gradient.")
      .def("zero_grad", &Graph::zero_grad, "Forgets the gradient.")
      .def(
          "retain_grad", [](Graph& self) -> Graph& { return self.retain_grad(); },
          nb::rv_policy::none,
          "Makes backward keep the gradient of this graph although an operation made it.")
      .def("detach", &Graph::detach,
           "The same weights as a leaf that takes no part in differentiation.");

  graph
      .def(
          "arc_sort",
          [](const Graph& self, Flag olabel) {
            self.topology().index(olabel ? Side::output : Side::input);
          },
          "olabel"_a = false,
          "Prepares the arcs for matching by label. Never needed, and never changes a result.")
      .def(
          "mark_arc_sorted", [](const Graph&, Flag) {}, "olabel"_a = false,
          "Accepted for programs written for gtn; has no effect.");

  graph
      .def(
          "__matmul__",
          [](const Graph& self, const Graph& other) {
            const Graph first = self.snapshot(), second = other.snapshot();
            nb::gil_scoped_release release;
            return compose(first, second);
          },
          nb::is_operator())
      .def(
          "__add__",
          [](const Graph& self, const Graph& other) {
            const std::vector<Graph> graphs{self.snapshot(), other.snapshot()};
            nb::gil_scoped_release release;
            return union_(graphs);
          },
          nb::is_operator())
      .def("__repr__", &describe)
      .def(
          "_repr_svg_",
          [](nb::handle self) { return nb::module_::import_("arcgrad.drawing").attr("svg")(self); },
          nb::sig("def _repr_svg_(self) -> str | None"))
      .def("__getstate__",
           [](const Graph& self) {
             const std::string bytes = to_bytes(self);
             return std::make_tuple(nb::bytes(bytes.data(), bytes.size()), self.calc_grad());
           })
      .def(
          "__reduce__",
          [](nb::handle self) {
            // By default, protocols before 2 refuse what is not written in Python.
            return nb::make_tuple(nb::module_::import_("copyreg").attr("__newobj__"),
                                  nb::make_tuple(self.type()), self.attr("__getstate__")());
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", [](Graph& self, const std::tuple<nb::bytes, bool>& state) {
        const nb::bytes& bytes = std::get<0>(state);
        new (&self) Graph(from_bytes({bytes.c_str(), bytes.size()}, "pickle"));
        self.set_calc_grad(std::get<1>(state));
      });

  m.def("linear_graph", &make_linear, "frames"_a, "labels"_a, "weights"_a = nb::none(),
        nb::kw_only(), "calc_grad"_a = true, "dtype"_a = nb::none(), "copy"_a = true, R"(
A dense linear graph, such as the emissions of a network.

It has ``frames`` + 1 nodes in a row; arc ``t * labels + c`` goes from node t to t + 1 with label c.

Args:
    frames: The number of steps.
    labels: The number of arcs per step.
    weights: An array of ``frames`` x ``labels`` weights; by default 0.
    calc_grad: Whether backward computes a gradient for this graph.
    dtype: By default that of the weights, else float32.
    copy: With False, the weights are a float array of shape ``(frames, labels)`` with any strides
        that is used without a copy. It must not be changed while results are in use.

>>> import arcgrad as ag
>>> g = ag.linear_graph(2, 3)
>>> g.num_nodes(), g.num_arcs(), g.labels_to_list()
(3, 6, [0, 1, 2, 0, 1, 2])
)");
  m.def("linear_graphs", &make_linears, "weights"_a, "lengths"_a = nb::none(), nb::kw_only(),
        "calc_grad"_a = true, "dtype"_a = nb::none(), "copy"_a = true, R"(
The dense linear graphs of a batch: a list with one :func:`linear_graph` per example.

Args:
    weights: An array of shape ``(examples, frames, labels)``.
    lengths: How many frames each example has; the others are padding. By default all.
    calc_grad: Whether backward computes gradients for these graphs.
    dtype: By default that of the weights.
    copy: With False, the weights are a float array with any strides that is used without a copy. It
        must not be changed while results are in use.

Raises:
    ValueError: If the array has not three dimensions, or a length does not fit it.

>>> import arcgrad as ag, numpy as np
>>> batch = ag.linear_graphs(np.zeros((2, 5, 3), np.float32), lengths=[5, 4])
>>> [g.num_arcs() for g in batch]
[15, 12]
)");
  m.def(
      "scalar_graph",
      [](double weight, Flag calc_grad, nb::object dtype) {
        return scalar_graph(weight, calc_grad, to_dtype("scalar_graph", dtype));
      },
      "weight"_a, "calc_grad"_a = true, nb::kw_only(), "dtype"_a = "float64", R"(
A graph with one epsilon arc, from a start node to an accept node.

>>> import arcgrad as ag
>>> ag.scalar_graph(1.5).item()
1.5
)");
  m.def(
      "chain_graph",
      [](nb::handle labels, nb::object olabels, nb::object weights, Flag calc_grad,
         nb::object dtype) {
        const char* op = "chain_graph";
        std::optional<DType> kind;
        if (!dtype.is_none()) kind = to_dtype(op, dtype);
        Column inputs = to_ints(op, "labels", labels), outputs;
        if (!olabels.is_none()) {
          outputs = to_ints(op, "olabels", olabels);
          require(outputs.size() == inputs.size(), op,
                  "there must be as many output labels as input labels, but there are ",
                  outputs.size(), " and ", inputs.size());
        }
        if (weights.is_none())
          return chain_graph(inputs, outputs, calc_grad, kind.value_or(DType::float32));
        Weights given = to_weights(op, weights, kind);
        Graph graph = chain_graph(inputs, outputs, calc_grad, given.dtype());
        require(given.size() == graph.num_arcs(), op, "there must be one weight per label, ",
                graph.num_arcs(), " in all, but there are ", given.size());
        graph.set_weights(std::move(given));
        return graph;
      },
      "labels"_a, "olabels"_a = nb::none(), "weights"_a = nb::none(), nb::kw_only(),
      "calc_grad"_a = false, "dtype"_a = nb::none(), R"(
A chain of arcs that spells a sequence of labels, such as a target.

Args:
    labels: The input labels.
    olabels: The output labels; by default the same.
    weights: One weight per label; by default 0.
    calc_grad: Whether backward computes a gradient for this graph.
    dtype: By default that of the weights, else float32.

>>> import arcgrad as ag
>>> ag.chain_graph([2, 0, 1]).num_nodes()
4
)");
}

}  // namespace arcgrad::bindings
