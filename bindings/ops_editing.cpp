// Bindings of ops that edit graphs: labels, weights, nodes and arcs, with their documentation.

#include <nanobind/stl/map.h>

#include <map>
#include <numeric>

#include "arcgrad/autograd/tape.h"
#include "ops.h"

namespace arcgrad::bindings {
namespace {

/// New labels from a mapping of old to new ones, or from an array of the new label of each old one.
std::optional<NewLabels> to_new_labels(const char* what, nb::handle values) {
  if (values.is_none()) return std::nullopt;
  NewLabels out;
  if (nb::hasattr(values, "items")) {
    const nb::module_ builtins = nb::module_::import_("builtins");
    const auto list = [&](const char* method) {
      return builtins.attr("list")(values.attr(method)());
    };
    out.from = to_ints("relabel", what, list("keys"));
    out.to = to_ints("relabel", what, list("values"));
    return out;
  }
  out.to = to_ints("relabel", what, values);
  out.from.resize(out.to.size());
  std::iota(out.from.begin(), out.from.end(), 0);
  out.is_total = true;
  return out;
}

/// Ids of nodes or arcs from whole numbers, or from a mask with one bool for each of `count`.
Column to_ids(const char* op, const char* what, nb::handle values, int64_t count) {
  const nb::object array = as_array(op, what, values);
  if (show(array.attr("dtype")) != "bool") return to_ints(op, what, array);
  require(array.attr("shape").equal(nb::make_tuple(count)), op, "a mask of ", what,
          " must have the shape (", count, ",), but its shape is ", show(array.attr("shape")));
  return to_ints(op, what, nb::module_::import_("numpy").attr("flatnonzero")(array));
}

/// Binds an op that deletes what an array of ids or a mask names.
template <class Op, class Count>
void def_delete(nb::module_& m, const char* name, const char* what, Op op, Count count,
                const char* doc) {
  m.def(
      name,
      [=](const Graph& graph, nb::object ids) {
        const Graph input = graph.snapshot();
        const Column deleted = to_ids(name, what, ids, count(input));
        return run_op(name, [&] { return op(input, deleted); });
      },
      "graph"_a, nb::arg(what).none(), doc);
  m.def(
      name,
      [=](const std::vector<Graph>& graphs, nb::sequence ids) {
        const std::vector<Graph> inputs = snapshots(graphs);
        require(nb::len(ids) == inputs.size(), name, "there must be ", what, " for each graph, ",
                inputs.size(), " in all, but there are ", nb::len(ids));
        std::vector<Column> deleted;
        for (size_t i = 0; i < inputs.size(); ++i)
          deleted.push_back(to_ids(name, what, nb::object(ids[i]), count(inputs[i])));
        return run_op(name, [&] {
          return map_batch(name, inputs.size(),
                           [&](size_t i) { return op(inputs[i], deleted[i]); });
        });
      },
      "graph"_a, nb::arg(what));
}

using Function = std::optional<nb::callable>;

MappedWeights apply(const Graph& graph, const nb::callable& fn, const Function& derivative,
                    const Function& second) {
  const char* op = "map_weights";
  nb::object weights = nb::cast(graph).attr("weights_to_numpy")();
  if (graph.has_node_weights())
    weights = nb::module_::import_("numpy").attr("concatenate")(
        nb::make_tuple(weights, nb::cast(graph).attr("start_weights")(),
                       nb::cast(graph).attr("accept_weights")()));
  const auto call = [&](const Function& f, DType dtype) {
    return f ? to_weights(op, (*f)(weights), dtype) : Weights();
  };
  MappedWeights out;
  out.values = call(fn, graph.dtype());
  if (!tracks(graph)) return out;
  out.first = call(derivative, DType::float64);
  out.second = call(second, DType::float64);
  return out;
}

std::vector<Replacement> to_replacements(const std::map<int64_t, Graph>& graphs) {
  std::vector<Replacement> out;
  for (const auto& [label, graph] : graphs)
    out.push_back({to_int32("replace", "a label", label), graph.snapshot()});
  return out;
}

void init_map_weights(nb::module_& m) {
  m.def(
      "map_weights",
      [](const Graph& graph, nb::callable fn, Function derivative, Function second) {
        const Graph input = graph.snapshot();
        MappedWeights mapped = apply(input, fn, derivative, second);
        return run_op("map_weights", [&] { return map_weights(input, std::move(mapped)); });
      },
      "graph"_a, "fn"_a, "derivative"_a = nb::none(), "second_derivative"_a = nb::none(), R"(
The graph with the weights ``fn(weights)``.

With PyTorch, where a function needs no derivative and may have parameters, write
``agt.graph(graph, fn(agt.tensor(graph)))`` instead.

Args:
    graph: A graph, or a list of graphs.
    fn: A function of a NumPy array, the weights, that works entry by entry, and returns as many.
        Node weights follow those of arcs: of start nodes, then of accept nodes.
    derivative: The derivative of ``fn``, a function of the same array. A graph with ``calc_grad``
        needs it.
    second_derivative: For derivatives of second order.

Raises:
    ValueError: If a function returns another number of entries, or there is no derivative.
    RuntimeError: If a derivative of second order is wanted without ``second_derivative``.

Gradient: the derivative times the gradient of the result. All functions are called at once, none
during ``backward``.

>>> import arcgrad as ag
>>> import numpy as np
>>> g = ag.chain_graph([1, 2], weights=[0.0, 1.0])
>>> ag.map_weights(g, np.square, lambda w: 2 * w).weights_to_list()
[0.0, 1.0]
)");
  m.def(
      "map_weights",
      [](const std::vector<Graph>& graphs, nb::callable fn, Function derivative, Function second) {
        const std::vector<Graph> inputs = snapshots(graphs);
        std::vector<MappedWeights> mapped;
        for (const Graph& graph : inputs) mapped.push_back(apply(graph, fn, derivative, second));
        return run_op("map_weights", [&] {
          return map_batch("map_weights", inputs.size(),
                           [&](size_t i) { return map_weights(inputs[i], mapped[i]); });
        });
      },
      "graph"_a, "fn"_a, "derivative"_a = nb::none(), "second_derivative"_a = nb::none());
}

void init_relabel(nb::module_& m) {
  m.def(
      "relabel",
      [](const Graph& graph, nb::object ilabels, nb::object olabels) {
        const Graph input = graph.snapshot();
        const auto in = to_new_labels("ilabels", ilabels), out = to_new_labels("olabels", olabels);
        return run_op("relabel", [&] { return relabel(input, in, out); });
      },
      "graph"_a, "ilabels"_a = nb::none(), "olabels"_a = nb::none(), R"(
The graph with other labels.

Args:
    graph: A graph, or a list of graphs.
    ilabels: The new input labels: a dict from old to new labels, in which other labels stay, or an
        array whose entry k is the new label of k. Epsilon stays unless the dict has it.
    olabels: The new output labels. For an acceptor that remains one, pass the same to both.

Symbols of labels stay on a side that gets no new labels.

Raises:
    ValueError: If a label is below -1, or an array has no entry for a label.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear.

>>> import arcgrad as ag
>>> g = ag.relabel(ag.chain_graph([0, 1]), {0: 7}, [5, 6])
>>> g.labels_to_list(), g.labels_to_list(ilabel=False)
([7, 1], [5, 6])
)");
  m.def(
      "relabel",
      [](const std::vector<Graph>& graphs, nb::object ilabels, nb::object olabels) {
        const std::vector<Graph> inputs = snapshots(graphs);
        const auto in = to_new_labels("ilabels", ilabels), out = to_new_labels("olabels", olabels);
        return run_op("relabel", [&] { return map("relabel", relabel, inputs, in, out); });
      },
      "graph"_a, "ilabels"_a = nb::none(), "olabels"_a = nb::none());
}

void init_replace(nb::module_& m) {
  m.def(
      "replace",
      [](const Graph& root, const std::map<int64_t, Graph>& graphs, const Integer& max_arcs) {
        const Graph input = root.snapshot();
        const std::vector<Replacement> replacements = to_replacements(graphs);
        const std::optional<int64_t> most = to_int64("replace", "max_arcs", max_arcs);
        return run_op("replace", [&] { return replace(input, replacements, most); });
      },
      "root"_a, "graphs"_a, nb::kw_only(), "max_arcs"_a = nb::none(), R"(
The graph in which each arc that has the label of a graph is replaced by a copy of that graph: a
recursive transition network, such as a grammar of named parts.

A copy stands between epsilon arcs; those that enter it have the weight of the replaced arc. Graphs may
contain labels of other graphs, but not their own, directly or through others.

Args:
    root: A graph, or a list of graphs.
    graphs: The graph of each label, as a dict.
    max_arcs: The most nodes, and arcs, of the result; by default as many as fit into half of the
        memory of this machine.

Raises:
    ValueError: If a graph contains itself, an arc has the label of a graph on one side only, or the
        result is too large.

Gradient: each arc passes its gradient to the arc it came from. Time and memory: linear in the
result, which may be exponentially larger than the graphs; it is counted before it is built.

>>> import arcgrad as ag
>>> digit = ag.union([ag.chain_graph([1]), ag.chain_graph([2])])
>>> pair = ag.replace(ag.chain_graph([100, 0, 100]), {100: digit})
>>> ag.forward_score(ag.intersect(ag.remove(pair), ag.chain_graph([2, 0, 1]))).item()
0.0
)");
  m.def(
      "replace",
      [](const std::vector<Graph>& roots, const std::map<int64_t, Graph>& graphs,
         const Integer& max_arcs) {
        const std::vector<Graph> inputs = snapshots(roots);
        const std::vector<Replacement> replacements = to_replacements(graphs);
        const std::optional<int64_t> most = to_int64("replace", "max_arcs", max_arcs);
        return run_op("replace",
                      [&] { return map("replace", replace, inputs, replacements, most); });
      },
      "root"_a, "graphs"_a, nb::kw_only(), "max_arcs"_a = nb::none());
}

}  // namespace

void init_editing_ops(nb::module_& m) {
  def_delete(m, "delete_arcs", "arcs", delete_arcs, [](const Graph& g) { return g.num_arcs(); }, R"(
The graph without some arcs. The others keep their order.

Args:
    graph: A graph, or a list of graphs.
    arcs: The ids of arcs, or a mask with one bool per arc; for a list of graphs, a list of them.

Raises:
    ValueError: If an arc does not exist, or the mask has another size.

Gradient: each arc passes its gradient to the arc it came from; deleted arcs get none. Time and
memory: linear.

>>> import arcgrad as ag
>>> ag.delete_arcs(ag.linear_graph(1, 3), [1]).labels_to_list()
[0, 2]
)");
  def_delete(
      m, "delete_nodes", "nodes", delete_nodes, [](const Graph& g) { return g.num_nodes(); }, R"(
The graph without some nodes and the arcs that enter or leave them. The other nodes and arcs keep
their order; nodes are numbered without gaps.

Args:
    graph: A graph, or a list of graphs.
    nodes: The ids of nodes, or a mask with one bool per node; for a list of graphs, a list of them.

Raises:
    ValueError: If a node does not exist, or the mask has another size.

Gradient: each arc passes its gradient to the arc it came from; deleted arcs get none. Time and
memory: linear.

>>> import arcgrad as ag
>>> ag.delete_nodes(ag.chain_graph([1, 2, 3]), [0]).labels_to_list()
[2, 3]
)");
  init_relabel(m);
  init_map_weights(m);
  init_replace(m);
}

}  // namespace arcgrad::bindings
