// Binds class Graph: building, gradients, operators, printing and pickling.

#include "graph.h"

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <string>

#include "arcgrad/io/io.h"
#include "symbol_table.h"

namespace arcgrad::bindings {
namespace {

/// An arc in the usual notation: "1:2/0.5", or "1/0.5" if both labels are equal on every arc.
std::string describe_arc(const Topology& t, const Weights& weights, int32_t a) {
  const auto name = [](int32_t label, const SymbolTablePtr& table) {
    if (label < 0) return label_text(label);
    return (table ? table->symbol(label) : std::nullopt).value_or(std::to_string(label));
  };
  const auto& [input, output] = t.symbols();
  std::string label = name(t.ilabel()[a], input);
  // An acceptor is shown as one unless its sides have different symbols.
  if (std::string other = name(t.olabel()[a], output); !t.is_acceptor() || other != label)
    label.append(":").append(other);
  return text("  ", t.src()[a], " -> ", t.dst()[a], "  ", label, "/", weights[a]);
}

/// "[0, 2]", or "[0/0.5, 2/0]" with the weights of the nodes, if the graph has them.
std::string describe_nodes(std::span<const int32_t> nodes, const Graph& graph,
                           int32_t first_weight) {
  std::string out = "[";
  for (size_t i = 0; i < std::min<size_t>(nodes.size(), 8); ++i) {
    out += (i ? ", " : "") + std::to_string(nodes[i]);
    if (graph.has_node_weights())
      out += text("/", graph.raw_weights()[first_weight + static_cast<int64_t>(i)]);
  }
  return out + (nodes.size() > 8 ? ", ...]" : "]");
}

/// A lazy product is described by its factors, since counting its arcs would materialize it.
std::string describe_product(const Graph& graph) {
  const Product& product = *graph.product();
  const auto size = [](const Graph& factor) {
    const Topology& t = factor.topology();
    if (t.dense()) return text("linear ", t.dense()->frames, " x ", t.dense()->labels);
    return text(t.num_nodes(), t.num_nodes() == 1 ? " node, " : " nodes, ", t.num_arcs(),
                t.num_arcs() == 1 ? " arc" : " arcs");
  };
  return text("Graph(product of (", size(product.first()), ") and (", size(product.second()),
              "), not built, ", name_of(graph.dtype()), graph.calc_grad() ? ", calc_grad)" : ")");
}

std::string describe(const Graph& graph) {
  constexpr int32_t kShown = 10;
  if (is_unbuilt(graph)) return describe_product(graph);
  const Topology& t = materialize(graph).topology();
  std::string out = text("Graph(", t.num_nodes(), t.num_nodes() == 1 ? " node, " : " nodes, ",
                         t.num_arcs(), t.num_arcs() == 1 ? " arc, " : " arcs, ", "start ",
                         describe_nodes(t.start(), graph, t.first_start_weight()), ", accept ",
                         describe_nodes(t.accept(), graph, t.first_accept_weight()), ", ",
                         name_of(graph.dtype()));
  if (t.dense()) out += text(", linear ", t.dense()->frames, " x ", t.dense()->labels);
  if (graph.product()) out += ", product";
  if (graph.calc_grad()) out += ", calc_grad";
  out += ")";
  // The arcs of a large linear graph are not printed, since that would make its arrays.
  if (t.dense() && t.num_arcs() > kShown) return out;
  for (int32_t a = 0; a < std::min(t.num_arcs(), kShown); ++a)
    out.append("\n").append(describe_arc(t, graph.raw_weights(), a));
  if (t.num_arcs() > kShown) out += text("\n  ... ", t.num_arcs() - kShown, " more");
  return out;
}

}  // namespace

void init_graph(nb::module_& m) {
  nb::class_<Graph> graph(m, "Graph", explained_constructor(), R"(
A weighted finite-state transducer.

Nodes and arcs are numbered from 0 in the order in which they are added. An arc has an input label
and an output label, which are whole numbers from 0 or :data:`epsilon`, :data:`phi` and :data:`rho`
(see the guide on failure and rest arcs), and a weight. If the labels
are equal on every arc, the graph is an acceptor. Weights are log-domain scores: larger is better,
and ``-inf`` is impossible. There may be several start and accept nodes, parallel arcs, self-loops
and cycles.

Iteration gives the arcs, as :class:`Arc`, and ``len(graph)`` is their number. A graph is true in a
condition, also without arcs.

Args:
    calc_grad: Whether :func:`backward` computes a gradient for this graph.
    dtype: ``"float32"`` or ``"float64"``.
    isymbols: The symbols of the input labels, a :class:`SymbolTable`; arcs may then be given by
        symbols.
    osymbols: The symbols of the output labels; by default those of the input labels.

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
>>> list(g)
[Arc(src=0, dst=1, ilabel=2, olabel=3, weight=0.5)]
)");
  graph.def(
      "__init__",
      [](Graph* self, Flag calc_grad, nb::object dtype, std::optional<SymbolHandle> isymbols,
         std::optional<SymbolHandle> osymbols) {
        new (self) Graph(calc_grad, to_dtype("Graph", dtype));
        if (isymbols || osymbols) self->set_symbols(to_tables(isymbols, osymbols));
      },
      "calc_grad"_a = true, nb::kw_only(), "dtype"_a = "float32", "isymbols"_a = nb::none(),
      "osymbols"_a = nb::none());
  graph.def(nb::init<const Graph&>(), "graph"_a, "A second handle on the same graph.");
  def_graph_constructors(m, graph);

  graph
      .def(
          "add_node",
          [](Graph& self, Flag start, Flag accept, std::optional<double> start_weight,
             std::optional<double> accept_weight) {
            return self.add_node(start, accept, start_weight, accept_weight);
          },
          "start"_a = false, "accept"_a = false, nb::kw_only(), "start_weight"_a = nb::none(),
          "accept_weight"_a = nb::none(), R"(
Adds a node and returns its id.

A weight of a start or accept node is added to the score of every path that starts or ends there.
It gives the graph *node weights*: of the other start and accept nodes they are 0.

>>> import arcgrad as ag
>>> g = ag.Graph()
>>> g.add_node(start=True)
0
>>> g.add_node(accept=True, accept_weight=-0.5)
1
>>> g.add_arc(0, 1, 2, weight=2.0)
0
>>> ag.viterbi_score(g).item()
1.5
)")
      .def(
          "add_arc",
          [](Graph& self, int64_t src, int64_t dst, const Label& ilabel,
             const std::optional<Label>& olabel, double weight) {
            const char* op = "add_arc";
            // Converted one by one, so that the first wrong argument is reported: the order in
            // which arguments of a call are evaluated is unspecified.
            const int32_t from = to_int32(op, "the source node", src);
            const int32_t to = to_int32(op, "the destination node", dst);
            const auto& [input, output] = self.topology().symbols();
            const int32_t in = to_label(op, "the input label", ilabel, input);
            const int32_t out = to_label(op, "the output label", olabel ? *olabel : ilabel,
                                         olabel ? output : input);
            return self.add_arc(from, to, in, out, weight);
          },
          "src"_a, "dst"_a, "ilabel"_a, "olabel"_a = nb::none(), "weight"_a = 0.0,
          "Adds an arc and returns its id. Without ``olabel`` both labels are ``ilabel``. A label "
          "is a "
          "number, or a symbol of the table of its side.")
      .def(
          "make_start",
          [](Graph& self, int64_t node, std::optional<double> weight) {
            self.make_start(check_node(self, "make_start", node), weight);
          },
          "node"_a, "weight"_a = nb::none(), "Makes a node a start node, with a weight if given.")
      .def(
          "make_accept",
          [](Graph& self, int64_t node, std::optional<double> weight) {
            self.make_accept(check_node(self, "make_accept", node), weight);
          },
          "node"_a, "weight"_a = nb::none(), "Makes a node an accept node, with a weight if given.")
      .def(
          "set_start_weight",
          [](Graph& self, int64_t node, double weight) {
            self.set_start_weight(check_node(self, "set_start_weight", node), weight);
          },
          "node"_a, "weight"_a,
          "Replaces the weight of a start node. Earlier results do not change.")
      .def(
          "set_accept_weight",
          [](Graph& self, int64_t node, double weight) {
            self.set_accept_weight(check_node(self, "set_accept_weight", node), weight);
          },
          "node"_a, "weight"_a,
          "Replaces the weight of an accept node. Earlier results do not change.");

  def_graph_access(graph);

  const auto def_symbols = [&](const char* name, Side side, const char* doc) {
    graph.def_prop_rw(
        name,
        [side](const Graph& self) -> std::optional<SymbolHandle> {
          const SymbolTablePtr& table = symbols_of(self).of(side);
          return table ? std::optional(SymbolHandle{table}) : std::nullopt;
        },
        [side, name](Graph& self, nb::handle value) {
          if (!value.is_none() && !nb::isinstance<SymbolHandle>(value))
            throw nb::type_error(text("Graph: ", name, " must be a SymbolTable or None, but it is ",
                                      nb::repr(value).c_str())
                                     .c_str());
          SymbolTables tables = materialize(self).topology().symbols();
          (side == Side::input ? tables.input : tables.output) =
              value.is_none() ? nullptr : nb::cast<const SymbolHandle&>(value).table;
          self.set_symbols(std::move(tables));
        },
        nb::for_setter("value"_a.none()),
        nb::for_setter(
            nb::sig(text("def ", name, "(self, value: SymbolTable | None, /) -> None").c_str())),
        doc);
  };
  def_symbols(
      "isymbols", Side::input,
      "The symbols of the input labels, or None. Setting them keeps weights and gradients.");
  def_symbols("osymbols", Side::output, "The symbols of the output labels, or None.");

  graph
      .def_prop_rw(
          "calc_grad", &Graph::calc_grad,
          [](Graph& self, nb::handle value) {
            self.set_calc_grad(to_flag("Graph", "calc_grad", value));
          },
          nb::for_setter("value"_a.none()),
          nb::for_setter(nb::sig("def calc_grad(self, value: bool, /) -> None")),
          "Whether backward computes a gradient for this graph. Switching it off drops the "
          "gradient "
          "and the operation that made the graph.")
      .def("grad", &Graph::grad,
           "The gradient: a graph with the same topology whose weights are the derivatives.")
      .def("is_grad_available", &Graph::is_grad_available,
           "Whether backward has stored a gradient.")
      .def("zero_grad", &Graph::zero_grad, "Drops the gradient.")
      .def(
          "retain_grad", [](Graph& self) -> Graph& { return self.retain_grad(); },
          nb::rv_policy::none,
          "Makes backward store the gradient of this graph even if an operation made it.")
      .def("detach", &Graph::detach,
           "The same nodes, arcs and weights as a graph without ``calc_grad``.");

  graph
      .def(
          "arc_sort",
          [](const Graph& self, Flag olabel) {
            self.topology().index(olabel ? Side::output : Side::input);
          },
          "olabel"_a = false,
          "Builds the index by label now instead of at its first use. Does not change any result.")
      .def(
          "mark_arc_sorted", [](const Graph&, Flag) {}, "olabel"_a = false,
          "Accepted for programs written for gtn; has no effect.");

  graph
      .def(
          "__matmul__",
          [](const Graph& self, const Graph& other) {
            const Graph first = self.snapshot(), second = other.snapshot();
            return run_op("compose", [&] { return compose(first, second); });
          },
          nb::is_operator())
      .def(
          "__add__",
          [](const Graph& self, const Graph& other) {
            const std::vector<Graph> graphs{self.snapshot(), other.snapshot()};
            return run_op("union", [&] { return union_(graphs); });
          },
          nb::is_operator())
      .def("__repr__", &describe)
      .def("__len__", &Graph::num_arcs)
      .def("__bool__", [](const Graph&) { return true; })
      .def("__iter__",
           [](nb::handle self) {
             return nb::module_::import_("arcgrad._arcs").attr("arcs_of")(self);
           })
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
            // Without this, pickle protocols 0 and 1 reject extension types.
            return nb::make_tuple(nb::module_::import_("copyreg").attr("__newobj__"),
                                  nb::make_tuple(self.type()), self.attr("__getstate__")());
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", [](Graph& self, const std::tuple<nb::bytes, bool>& state) {
        const nb::bytes& bytes = std::get<0>(state);
        new (&self) Graph(from_bytes({bytes.c_str(), bytes.size()}, "pickle"));
        self.set_calc_grad(std::get<1>(state));
      });
}

}  // namespace arcgrad::bindings
