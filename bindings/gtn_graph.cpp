// Binds the class Graph of arcgrad.gtn.

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/gtn/compose.h"
#include "graph.h"
#include "gtn.h"
#include "symbol_table.h"

namespace arcgrad::bindings {
namespace {

/// The first page of memory holds no buffer, so a number below this is a weight, not an address.
constexpr int64_t kFirstAddress = 4096;
/// A product with at most this many arcs is built to be printed.
constexpr int64_t kMostPrinted = 1'000'000;

/// A value that gtn accepts as a bool, such as an int or a NumPy bool, but no string or list.
bool to_truth(const char* op, const char* what, nb::handle value) {
  const auto* number = Py_TYPE(value.ptr())->tp_as_number;
  if (!number || !number->nb_bool)
    throw nb::type_error(
        text(op, ": ", what, " must be a bool, but it is ", nb::repr(value).c_str()).c_str());
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth == 1;
}

/// Writes the weights of the arcs as float32.
void write_floats(const Graph& graph, float* out) {
  Weights weights = materialize(graph).weights();
  weights.truncate(graph.num_arcs());
  dispatch(weights.dtype(), [&](auto kind) {
    std::ranges::transform(weights.view<decltype(kind)>(), out,
                           [](auto w) { return static_cast<float>(w); });
  });
}

/// The address of a float32 copy. The next call with the same number of arcs overwrites it.
uintptr_t lend_weights(const GtnGraph& graph) {
  const int64_t size = materialize(graph).num_arcs();
  auto& copy = graph.share().copies[size];
  if (!copy) copy = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(size));
  write_floats(graph, copy.get());
  return reinterpret_cast<uintptr_t>(copy.get());
}

nb::object copy_weights(const Graph& graph) {
  const auto size = static_cast<size_t>(materialize(graph).num_arcs());
  auto* const copy = new float[size];
  nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  write_floats(graph, copy);
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(copy, {size}, owner));
}

/// Reads weights at an address.
Weights read_weights(const Graph& graph, nb::handle number) {
  const int64_t size = materialize(graph).num_arcs();
  int64_t address = -1;
  if (!nb::try_cast(nb::steal(PyNumber_Index(number.ptr())), address)) address = -1;
  require(size == 0 || address >= kFirstAddress, "set_weights", "a number must be the address of ",
          size, " float32 weights, but it is ", address,
          "; pass the weights themselves as a list or an array");
  Weights out = Weights::uninitialized(size, graph.dtype());
  const auto* const from = reinterpret_cast<const float*>(static_cast<uintptr_t>(address));
  dispatch(out.dtype(),
           [&](auto kind) { std::copy(from, from + size, out.fill<decltype(kind)>().begin()); });
  return out;
}

/// The text format, shortened for large graphs.
std::string print(const GtnGraph& graph) {
  const Topology& t = materialize(graph).topology();
  const int32_t size = std::max(t.num_nodes(), t.num_arcs());
  const auto most = static_cast<size_t>(size <= 20 ? size : 10);
  std::string out;
  for (const auto nodes : {t.start(), t.accept()}) {
    for (size_t i = 0; i < std::min(nodes.size(), most); ++i)
      out.append(i ? " " : "").append(std::to_string(nodes[i]));
    out += nodes.size() > most ? " ...\n" : "\n";
  }
  const auto count = static_cast<size_t>(t.num_arcs());
  for (size_t a = 0; a < std::min(count, most); ++a) {
    char weight[32];
    std::snprintf(weight, sizeof weight, "%g", graph.raw_weights()[static_cast<int64_t>(a)]);
    out += text(t.src()[a], " ", t.dst()[a], " ", t.ilabel()[a], " ", t.olabel()[a], " ", weight,
                "\n");
  }
  return out + (count > most ? "...\n" : "");
}

}  // namespace

GtnGraph to_gtn(Graph graph) {
  GtnGraph out(std::move(graph));
  if (out.calc_grad() && !gtn::is_large_product(out)) out.retain_grad();
  return out;
}

void init_gtn_graph(nb::module_& m) {
  nb::class_<GtnGraph, Graph> graph(m, "GtnGraph", explained_constructor(), R"(
An arcgrad graph with gtn's methods.

``Graph(graph)`` is another handle on the same graph, so graphs pass between the two libraries
without a copy.
)");
  graph
      .def(
          "__init__",
          [](GtnGraph* self, const GtnGraph& other) {
            other.share();
            new (self) GtnGraph(other);
          },
          "graph"_a, "Another handle on a graph.")
      .def(
          "__init__",
          [](GtnGraph* self, const Graph& other) {
            if (!other.product()) require_no_failures("Graph", other.topology());
            new (self) GtnGraph(other);
          },
          "graph"_a)
      .def(
          "__init__",
          [](GtnGraph* self, nb::handle calc_grad, nb::object dtype) {
            new (self)
                GtnGraph(to_truth("Graph", "calc_grad", calc_grad), to_dtype("Graph", dtype));
          },
          "calc_grad"_a.none() = true, nb::kw_only(), "dtype"_a = "float32",
          nb::sig("def __init__(self, calc_grad: bool = True, *, dtype: object = 'float32') -> "
                  "None"));

  graph
      .def(
          "add_node",
          [](GtnGraph& self, nb::handle start, nb::handle accept,
             std::optional<double> start_weight, std::optional<double> accept_weight) {
            const bool is_start = to_truth("add_node", "start", start);
            const bool is_accept = to_truth("add_node", "accept", accept);
            if (self.shared) self.shared->order = {};
            return self.add_node(is_start, is_accept, start_weight, accept_weight);
          },
          "start"_a.none() = false, "accept"_a.none() = false, nb::kw_only(),
          "start_weight"_a = nb::none(), "accept_weight"_a = nb::none(),
          nb::sig("def add_node(self, start: bool = False, accept: bool = False, *, "
                  "start_weight: float | None = None, accept_weight: float | None = None) -> int"),
          "Add a node and return its id. The ops of gtn refuse weights of nodes.")
      .def(
          "add_arc",
          [](GtnGraph& self, int64_t src, int64_t dst, std::optional<Label> ilabel,
             const std::optional<Label>& olabel, double weight, const std::optional<Label>& label) {
            const char* const op = "add_arc";
            const int32_t from = to_int32(op, "the source node", src);
            const int32_t to = to_int32(op, "the destination node", dst);
            if (label) ilabel = label;
            if (!ilabel) throw nb::type_error("add_arc: a label is needed, but it is missing");
            const auto& [input, output] = self.topology().symbols();
            const int32_t in = to_label(op, "the input label", *ilabel, input);
            const int32_t out = olabel ? to_label(op, "the output label", *olabel, output) : in;
            require(in >= kEpsilon && out >= kEpsilon, op,
                    "the labels must be 0 or more, or epsilon (-1), but they are ", in, " and ",
                    out);
            if (self.shared) self.shared->order = {};
            return self.add_arc(from, to, in, out, weight);
          },
          "src_node"_a, "dst_node"_a, "ilabel"_a = nb::none(), "olabel"_a = nb::none(),
          "weight"_a = 0.0, nb::kw_only(), "label"_a = nb::none(),
          "Add an arc and return its id; a single label is both input and output.")
      .def("weights", &lend_weights,
           "The address of a float32 copy of the weights, which later calls update.")
      .def("weights_to_numpy", &copy_weights,
           nb::sig("def weights_to_numpy(self) -> numpy.typing.NDArray[numpy.float32]"),
           "A float32 copy of the weights, one per arc.")
      .def(
          "set_weights",
          [](GtnGraph& self, nb::handle weights) {
            const bool is_address =
                PyLong_Check(weights.ptr()) ||
                (PyIndex_Check(weights.ptr()) && !nb::hasattr(weights, "__len__"));
            self.set_weights(is_address ? read_weights(self, weights)
                                        : to_weights("set_weights", weights, self.dtype()));
          },
          "weights"_a.none(), nb::sig("def set_weights(self, weights: object) -> None"),
          "Copy the weights from the address of float32 numbers, or from an array or list.")
      .def(
          "labels_to_list",
          [](const GtnGraph& self, nb::handle ilabel) {
            const Side side =
                to_truth("labels_to_list", "ilabel", ilabel) ? Side::input : Side::output;
            const auto labels = materialize(self).topology().label(side);
            return std::vector<int32_t>(labels.begin(), labels.end());
          },
          "ilabel"_a.none() = true,
          nb::sig("def labels_to_list(self, ilabel: bool = True) -> list[int]"),
          "The input labels, or the output labels, one per arc.")
      .def(
          "arc_sort",
          [](const GtnGraph& self, nb::handle olabel) {
            const bool by_olabel = to_truth("arc_sort", "olabel", olabel);
            gtn::ArcOrder& order = self.share().order;
            if (is_emissions(self) || (by_olabel ? order.by_olabel : order.by_ilabel)) return;
            order = {!by_olabel, by_olabel, by_olabel ? Side::output : Side::input};
          },
          "olabel"_a.none() = false, nb::sig("def arc_sort(self, olabel: bool = False) -> None"),
          "Sort the arcs of each node by label. Changes the order of the arcs of compositions, and "
          "which of equally good paths is taken.")
      .def(
          "mark_arc_sorted",
          [](const GtnGraph& self, nb::handle olabel) {
            gtn::ArcOrder& order = self.share().order;
            (to_truth("mark_arc_sorted", "olabel", olabel) ? order.by_olabel : order.by_ilabel) =
                true;
          },
          "olabel"_a.none() = false,
          nb::sig("def mark_arc_sorted(self, olabel: bool = False) -> None"),
          "Mark the arcs of each node as sorted. Changes the order of the arcs of compositions, "
          "but "
          "a wrong mark loses no path.");

  graph
      .def_prop_rw(
          "calc_grad", [](const GtnGraph& self) { return self.calc_grad(); },
          [](GtnGraph& self, nb::handle value) {
            const bool calc_grad = to_truth("calc_grad", "the value", value);
            self.set_calc_grad(calc_grad);
            if (!calc_grad && self.shared) self.shared->grad.reset();
          },
          nb::for_setter("value"_a.none()),
          nb::for_setter(nb::sig("def calc_grad(self, value: bool, /) -> None")),
          "Whether backward computes a gradient for this graph.")
      .def(
          "grad",
          [](const GtnGraph& self) {
            GtnGraph gradient(self.grad());
            auto& shared = self.share().grad;
            if (!shared) shared = std::make_shared<GtnShared>();
            gradient.shared = shared;
            return gradient;
          },
          "The gradient: a graph of the same structure.")
      .def(
          "zero_grad",
          [](GtnGraph& self) {
            self.zero_grad();
            if (self.shared) self.shared->grad.reset();
          },
          "Drop the gradient.")
      .def(
          "cpu", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def cpu(self) -> GtnGraph"), "The graph itself: it is always on the CPU.")
      .def(
          "cuda",
          [](const GtnGraph&, nb::handle) {
            throw std::runtime_error(
                "cuda: a CUDA device is needed, but arcgrad.gtn runs on the CPU only");
          },
          "device"_a.none() = nb::none(),
          nb::sig("def cuda(self, device: object | None = None) -> GtnGraph"),
          "Raise RuntimeError: there is no CUDA device.")
      .def("is_cuda", [](const GtnGraph&) { return false; }, "False.");

  graph
      .def("__setstate__",
           [](GtnGraph& self, const std::tuple<nb::bytes, bool>& state) {
             const nb::bytes& bytes = std::get<0>(state);
             new (&self) GtnGraph(from_bytes({bytes.c_str(), bytes.size()}, "pickle"));
             self.set_calc_grad(std::get<1>(state));
           })
      .def(
          "__repr__",
          [](nb::handle self) -> nb::object {
            const auto& graph = nb::cast<const GtnGraph&>(self);
            if (gtn::is_large_product(graph, kMostPrinted))
              return nb::type<Graph>().attr("__repr__")(self);
            return nb::cast(print(graph));
          },
          nb::sig("def __repr__(self) -> str"));
}

}  // namespace arcgrad::bindings
