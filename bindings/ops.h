#pragma once

// Templates that bind an op under one name for a graph and for a list of graphs. They release the
// GIL while the op runs.

#include "arcgrad/ops.h"
#include "common.h"

namespace arcgrad::bindings {

// One function per file of bindings.
void init_score_ops(nb::module_& m);
void init_decoding_ops(nb::module_& m);
void init_graph_ops(nb::module_& m);
void init_comparison_ops(nb::module_& m);

/// Binds an op of one graph. The graphs of a list are distributed over the thread pool.
template <class... Args, class Op, class... Extra>
void def_op(nb::module_& m, const char* name, Op op, const char* doc, const Extra&... extra) {
  m.def(
      name,
      [op](const Graph& graph, Args... args) {
        const Graph input = graph.snapshot();
        nb::gil_scoped_release release;
        return op(input, args...);
      },
      "graph"_a, extra..., doc);
  m.def(
      name,
      [name, op](const std::vector<Graph>& graphs, Args... args) {
        const std::vector<Graph> inputs = snapshots(graphs);
        nb::gil_scoped_release release;
        return map(name, op, inputs, args...);
      },
      "graph"_a, extra...);
}

/// Binds an op of one graph that takes a list as one batch.
template <class Op>
void def_score(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [op](const Graph& graph) {
        const Graph input = graph.snapshot();
        nb::gil_scoped_release release;
        return op(input);
      },
      "graph"_a, doc);
  m.def(
      name,
      [op](const std::vector<Graph>& graphs) {
        const std::vector<Graph> inputs = snapshots(graphs);
        nb::gil_scoped_release release;
        return op(inputs);
      },
      "graph"_a);
}

/// Binds an op of two graphs.
template <class Op>
void def_op2(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [op](const Graph& first, const Graph& second) {
        const Graph a = first.snapshot(), b = second.snapshot();
        nb::gil_scoped_release release;
        return op(a, b);
      },
      "first"_a, "second"_a, doc);
  m.def(
      name,
      [name, op](const Batch& first, const Batch& second) {
        const std::vector<Graph> a = snapshots(first), b = snapshots(second);
        nb::gil_scoped_release release;
        return map2(name, op, a, b);
      },
      "first"_a, "second"_a);
}

/// Binds an op of a list of graphs; a batch is a list of lists.
template <class Op>
void def_op_of_list(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [op](const std::vector<Graph>& graphs) {
        const std::vector<Graph> inputs = snapshots(graphs);
        nb::gil_scoped_release release;
        return op(inputs);
      },
      "graphs"_a, doc);
  m.def(
      name,
      [name, op](const std::vector<std::vector<Graph>>& graphs) {
        std::vector<std::vector<Graph>> inputs;
        for (const auto& list : graphs) inputs.push_back(snapshots(list));
        nb::gil_scoped_release release;
        return map_batch(name, inputs.size(), [&](size_t i) { return op(inputs[i]); });
      },
      "graphs"_a);
}

}  // namespace arcgrad::bindings
