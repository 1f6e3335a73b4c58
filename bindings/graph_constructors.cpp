// Binds the functions that make graphs from arrays and of simple shapes.

#include <algorithm>
#include <array>

#include "graph.h"
#include "symbol_table.h"

namespace arcgrad::bindings {
namespace {

void check_dtype(const char* op, DType given, DType wanted) {
  require(given == wanted, op, "weights that are not copied keep their dtype, ", name_of(given),
          ", but dtype is ", name_of(wanted));
}

/// Weights that a caller gives, or None.
struct GivenWeights {
  const char* name;
  const char* of;
  nb::handle values;
  size_t count;
};

/// The given weights one after the other in one buffer. Those that are None are 0.
Weights join_weights(const char* op, std::span<const GivenWeights> parts,
                     std::optional<DType> dtype) {
  std::vector<Weights> given(parts.size());
  DType widest = DType::float32;
  int64_t size = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    size += static_cast<int64_t>(parts[i].count);
    if (parts[i].values.is_none()) continue;
    given[i] = to_weights(op, parts[i].values, dtype);
    widest = promote(widest, given[i].dtype());
    if (parts.size() == 1) return given[0];
    require(given[i].size() == static_cast<int64_t>(parts[i].count), op, parts[i].name,
            " must have one entry per ", parts[i].of, ", ", parts[i].count, " in all, but it has ",
            given[i].size());
  }
  Weights out = Weights::zeros(size, dtype.value_or(widest));
  dispatch(out.dtype(), [&](auto kind) {
    auto* to = out.fill<decltype(kind)>().data();
    for (size_t i = 0; i < parts.size(); to += parts[i++].count)
      if (given[i]) {
        const Weights part = given[i].cast(out.dtype());
        std::ranges::copy(part.view<decltype(kind)>(), to);
      }
  });
  return out;
}

Graph from_arrays(nb::handle src, nb::handle dst, nb::handle ilabel, nb::handle olabel,
                  nb::handle weight, nb::handle start, nb::handle accept,
                  std::optional<int64_t> num_nodes, nb::handle dtype, Flag calc_grad,
                  nb::handle start_weights, nb::handle accept_weights,
                  const std::optional<SymbolHandle>& isymbols,
                  const std::optional<SymbolHandle>& osymbols) {
  const char* op = "from_arrays";
  Arrays arrays;
  arrays.src = to_ints(op, "src", src);
  arrays.dst = to_ints(op, "dst", dst);
  arrays.symbols = to_tables(isymbols, osymbols);
  arrays.ilabel = to_labels(op, "ilabel", ilabel, arrays.symbols.input);
  const size_t count = arrays.src.size();
  if (!olabel.is_none()) {
    arrays.olabel = to_labels(op, "olabel", olabel, arrays.symbols.output);
    require(arrays.olabel.size() == count, op, "olabel must have one entry per arc, ", count,
            " in all, but it has ", arrays.olabel.size());
  }
  arrays.start = to_ints(op, "start", start);
  arrays.accept = to_ints(op, "accept", accept);
  std::optional<DType> kind;
  if (!dtype.is_none()) kind = to_dtype(op, dtype);
  arrays.has_node_weights = !start_weights.is_none() || !accept_weights.is_none();
  std::vector<GivenWeights> parts{{"weight", "arc", weight, count}};
  if (arrays.has_node_weights) {
    parts.push_back({"start_weights", "start node", start_weights, arrays.start.size()});
    parts.push_back({"accept_weights", "accept node", accept_weights, arrays.accept.size()});
  }
  Weights weights = join_weights(op, parts, kind);
  if (num_nodes) {
    arrays.num_nodes = to_int32(op, "num_nodes", *num_nodes);
  } else {
    int32_t last = -1, last_end = -1;
    for (const auto* nodes : {&arrays.src, &arrays.dst})
      for (int32_t n : *nodes) last = std::max(last, n);
    for (const auto* nodes : {&arrays.start, &arrays.accept})
      for (int32_t n : *nodes) last_end = std::max(last_end, n);
    // A node without arcs is more often a mistake than wanted.
    require(count == 0 || last_end <= last, op, "start and accept nodes must be among the ",
            int64_t{last} + 1, " nodes of the arcs, but there is ", last_end,
            "; for nodes without arcs, give num_nodes");
    last = std::max(last, last_end);
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
    require(copy, op, "copy=False requires weights, but there are none");
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
  if (!copy && kind) check_dtype(op, given.dtype(), *kind);
  return {std::make_shared<Topology>(t, c), std::move(given), calc_grad};
}

std::vector<Graph> make_linears(nb::handle weights, nb::handle lengths, Flag calc_grad,
                                nb::handle dtype, Flag copy) {
  const char* op = "linear_graphs";
  std::optional<DType> kind;
  if (!dtype.is_none()) kind = to_dtype(op, dtype);
  nb::object array = nb::borrow(weights);
  nb::ndarray<nb::ro, nb::device::cpu> view;
  if (!is_array(array) || !nb::try_cast(array, view, false)) {
    array = as_array(op, "weights", weights);
    if (!nb::try_cast(array, view, false)) {
      to_weights(op, array, kind);  // throws unless these are real numbers
      require(copy, op, "weights that are not copied must be float32 or float64, but they are ",
              show(array.attr("dtype")));
      array = array.attr("astype")("float64");
      view = nb::cast<decltype(view)>(array);
    }
  }
  if (view.ndim() != 3)
    fail(op, "the weights must have the shape (examples, frames, labels), but their shape is ",
         show(as_array(op, "weights", array).attr("shape")));
  const auto batch = static_cast<int64_t>(view.shape(0));
  const auto frames = static_cast<int64_t>(view.shape(1));
  const auto labels = static_cast<int64_t>(view.shape(2));
  require_size(op, "labels", labels);
  require_size(op, "nodes", frames + 1);
  require_size(op, "arcs", frames * labels);
  const Column counts = to_lengths(op, lengths, batch, frames);
  // Each graph borrows its part of the array, or of one copy of it.
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
    if (kind) check_dtype(op, type, *kind);
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

void def_graph_constructors(nb::module_& m, nb::class_<Graph>& graph) {
  graph.def_static("from_arrays", &from_arrays, "src"_a.none(), "dst"_a.none(), "ilabel"_a.none(),
                   "olabel"_a = nb::none(), "weight"_a = nb::none(), nb::kw_only(),
                   "start"_a.none(), "accept"_a.none(), "num_nodes"_a = nb::none(),
                   "dtype"_a = nb::none(), "calc_grad"_a = true, "start_weights"_a = nb::none(),
                   "accept_weights"_a = nb::none(), "isymbols"_a = nb::none(),
                   "osymbols"_a = nb::none(),
                   nb::sig("def from_arrays(src: object, dst: object, ilabel: object, "
                           "olabel: object | None = None, weight: object | None = None, *, "
                           "start: object, accept: object, num_nodes: int | None = None, "
                           "dtype: object | None = None, calc_grad: bool = True, "
                           "start_weights: object | None = None, "
                           "accept_weights: object | None = None, "
                           "isymbols: SymbolTable | None = None, "
                           "osymbols: SymbolTable | None = None) -> Graph"),
                   R"(
A graph from arrays with one entry per arc.

Args:
    src: The source node of each arc.
    dst: The destination node of each arc.
    ilabel: Input labels.
    olabel: Output labels. By default the input labels, so that the graph is an acceptor.
    weight: Weights; by default 0.
    start: Ids of the start nodes.
    accept: Ids of the accept nodes.
    num_nodes: The number of nodes. By default one more than the largest source or destination,
        so start and accept nodes without arcs need it.
    dtype: By default float64 if the weights are floats of more than 32 bits, else float32.
    calc_grad: Whether backward computes a gradient for this graph.
    start_weights: Weights of the start nodes, in the order of ``start``. If these or
        ``accept_weights`` are given, the graph has node weights; the others are 0.
    accept_weights: Weights of the accept nodes, in the order of ``accept``.
    isymbols: The symbols of the input labels. ``ilabel`` may then be a list of symbols.
    osymbols: The symbols of the output labels; by default those of the input labels.

Raises:
    ValueError: If the lengths differ, or a node or label is out of range.

>>> import arcgrad as ag
>>> ag.Graph.from_arrays([0, 0], [1, 1], [4, 5], weight=[0.5, 1.5], start=[0], accept=[1])
Graph(2 nodes, 2 arcs, start [0], accept [1], float32, calc_grad)
  0 -> 1  4/0.5
  0 -> 1  5/1.5
)");

  m.def("linear_graph", &make_linear, "frames"_a, "labels"_a, "weights"_a = nb::none(),
        nb::kw_only(), "calc_grad"_a = true, "dtype"_a = nb::none(), "copy"_a = true, R"(
A dense linear graph, such as the emissions of a network.

It has ``frames`` + 1 nodes. Arc ``t * labels + c`` goes from node t to node t + 1 with label c.

Args:
    frames: The number of steps.
    labels: The number of arcs per step.
    weights: An array of ``frames`` x ``labels`` weights; by default 0.
    calc_grad: Whether backward computes a gradient for this graph.
    dtype: By default that of the weights, else float32.
    copy: If False, ``weights`` is used without a copy. It must then be a float array of shape
        ``(frames, labels)`` with any strides, and must not be changed while results are in use.

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
    lengths: The number of frames of each example; the rest is padding. By default all frames. Or a
        mask ``(examples, frames)`` of bools, true up to the length of each example.
    calc_grad: Whether backward computes gradients for these graphs.
    dtype: By default that of the weights.
    copy: If False, ``weights`` is used without a copy. It must then be a float array with any
        strides, and must not be changed while results are in use.

Raises:
    ValueError: If the array does not have three dimensions, or a length is out of range.

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
A graph with one epsilon arc from a start node to an accept node.

>>> import arcgrad as ag
>>> ag.scalar_graph(1.5).item()
1.5
)");
  m.def(
      "chain_graph",
      [](nb::handle labels, nb::object olabels, nb::object weights, Flag calc_grad,
         nb::object dtype, const std::optional<SymbolHandle>& isymbols,
         const std::optional<SymbolHandle>& osymbols) {
        const char* op = "chain_graph";
        const SymbolTables symbols = to_tables(isymbols, osymbols);
        std::optional<DType> kind;
        if (!dtype.is_none()) kind = to_dtype(op, dtype);
        Column inputs = to_labels(op, "labels", labels, symbols.input), outputs;
        if (!olabels.is_none()) {
          outputs = to_labels(op, "olabels", olabels, symbols.output);
          require(outputs.size() == inputs.size(), op,
                  "there must be as many output labels as input labels, but there are ",
                  outputs.size(), " and ", inputs.size());
        }
        Weights given;
        if (!weights.is_none()) given = to_weights(op, weights, kind);
        Graph graph =
            chain_graph(inputs, outputs, calc_grad,
                        weights.is_none() ? kind.value_or(DType::float32) : given.dtype());
        if (!symbols.empty()) graph.set_symbols(symbols);
        if (weights.is_none()) return graph;
        require(given.size() == graph.num_arcs(), op, "there must be one weight per label, ",
                graph.num_arcs(), " in all, but there are ", given.size());
        graph.set_weights(std::move(given));
        return graph;
      },
      "labels"_a, "olabels"_a = nb::none(), "weights"_a = nb::none(), nb::kw_only(),
      "calc_grad"_a = false, "dtype"_a = nb::none(), "isymbols"_a = nb::none(),
      "osymbols"_a = nb::none(), R"(
A chain of arcs that spells a sequence of labels, such as a target.

Args:
    labels: The input labels: numbers, or symbols of ``isymbols``.
    olabels: The output labels; by default the same.
    weights: One weight per label; by default 0.
    calc_grad: Whether backward computes a gradient for this graph.
    dtype: By default that of the weights, else float32.
    isymbols: The symbols of the input labels.
    osymbols: The symbols of the output labels; by default those of the input labels.

>>> import arcgrad as ag
>>> ag.chain_graph([2, 0, 1]).num_nodes()
4
)");
}

}  // namespace arcgrad::bindings
