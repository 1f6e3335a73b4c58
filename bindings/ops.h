#pragma once

// Templates that bind an op under one name for a graph and for a list of graphs. They release the
// GIL while the op runs.

#include "arcgrad/ops.h"
#include "common.h"

namespace arcgrad::bindings {

// One function per file of bindings.
void init_score_ops(nb::module_& m);
void init_distribution_ops(nb::module_& m);
void init_decoding_ops(nb::module_& m);
void init_graph_ops(nb::module_& m);
void init_rule_ops(nb::module_& m);
void init_editing_ops(nb::module_& m);
void init_reduction_ops(nb::module_& m);
void init_normal_forms(nb::module_& m);
void init_properties(nb::module_& m);
void init_comparison_ops(nb::module_& m);

/// Binds an op of one graph. The graphs of a list are distributed over the thread pool.
template <class... Args, class Op, class... Extra>
void def_op(nb::module_& m, const char* name, Op op, const char* doc, const Extra&... extra) {
  m.def(
      name,
      [name, op](const Graph& graph, Args... args) {
        const Graph input = graph.snapshot();
        return run_op(name, [&] { return op(input, args...); });
      },
      "graph"_a, extra..., doc);
  m.def(
      name,
      [name, op](const std::vector<Graph>& graphs, Args... args) {
        const std::vector<Graph> inputs = snapshots(graphs);
        return run_op(name, [&] { return map(name, op, inputs, args...); });
      },
      "graph"_a, extra...);
}

/// Binds an op of one graph that takes a list as one batch.
template <class Op>
void def_score(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [name, op](const Graph& graph) {
        const Graph input = graph.snapshot();
        return run_op(name, [&] { return op(input); });
      },
      "graph"_a, doc);
  m.def(
      name,
      [name, op](const std::vector<Graph>& graphs) {
        const std::vector<Graph> inputs = snapshots(graphs);
        return run_op(name, [&] { return op(inputs); });
      },
      "graph"_a);
}

/// Binds an op of two graphs.
template <class Op>
void def_op2(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [name, op](const Graph& first, const Graph& second) {
        const Graph a = first.snapshot(), b = second.snapshot();
        return run_op(name, [&] { return op(a, b); });
      },
      "first"_a, "second"_a, doc);
  m.def(
      name,
      [name, op](const Batch& first, const Batch& second) {
        const std::vector<Graph> a = snapshots(first), b = snapshots(second);
        return run_op(name, [&] { return map2(name, op, a, b); });
      },
      "first"_a, "second"_a);
}

/// Binds a composition.
template <class Op>
void def_composition(nb::module_& m, const char* name, Op op, const char* doc) {
  const auto limit = [name](const Integer& max_arcs) {
    return to_int64(name, "max_arcs", max_arcs);
  };
  m.def(
      name,
      [name, op, limit](const Graph& first, const Graph& second, const Integer& max_arcs) {
        const Graph a = first.snapshot(), b = second.snapshot();
        const std::optional<int64_t> most = limit(max_arcs);
        return run_op(name, [&] { return op(a, b, most); });
      },
      "first"_a, "second"_a, nb::kw_only(), "max_arcs"_a = nb::none(), doc);
  m.def(
      name,
      [name, op, limit](const Batch& first, const Batch& second, const Integer& max_arcs) {
        const std::vector<Graph> a = snapshots(first), b = snapshots(second);
        const std::optional<int64_t> most = limit(max_arcs);
        return run_op(name, [&] {
          return map2(name, [&](const Graph& x, const Graph& y) { return op(x, y, most); }, a, b);
        });
      },
      "first"_a, "second"_a, nb::kw_only(), "max_arcs"_a = nb::none());
}

/// Binds an op of a list of graphs; a batch is a list of lists.
template <class Op>
void def_op_of_list(nb::module_& m, const char* name, Op op, const char* doc) {
  m.def(
      name,
      [name, op](const std::vector<Graph>& graphs) {
        const std::vector<Graph> inputs = snapshots(graphs);
        return run_op(name, [&] { return op(inputs); });
      },
      "graphs"_a, doc);
  m.def(
      name,
      [name, op](const std::vector<std::vector<Graph>>& graphs) {
        std::vector<std::vector<Graph>> inputs;
        for (const auto& list : graphs) inputs.push_back(snapshots(list));
        return run_op(name, [&] {
          return map_batch(name, inputs.size(), [&](size_t i) { return op(inputs[i]); });
        });
      },
      "graphs"_a);
}

}  // namespace arcgrad::bindings
