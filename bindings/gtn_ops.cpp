// Binds the ops of arcgrad.gtn. Their names start with gtn_; arcgrad.gtn adds gtn's argument forms.

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/closure.h"
#include "arcgrad/autograd/backward.h"
#include "arcgrad/autograd/tape.h"
#include "arcgrad/gtn/compose.h"
#include "arcgrad/gtn/remove.h"
#include "arcgrad/gtn/scores.h"
#include "arcgrad/ops.h"
#include "gtn.h"

namespace arcgrad::bindings {
namespace {

std::vector<GtnGraph> all_to_gtn(std::vector<Graph> graphs) {
  std::vector<GtnGraph> out;
  out.reserve(graphs.size());
  for (Graph& graph : graphs) out.push_back(to_gtn(std::move(graph)));
  return out;
}

/// Refuses node weights, which gtn does not have.
const GtnInput& checked(const char* op, const GtnInput& input) {
  if (input.graph.has_node_weights())
    fail(op, "the graph must have no node weights, which gtn does not have, but it has ",
         input.graph.num_weights() - input.graph.num_arcs(),
         "; use the op of arcgrad in place of that of arcgrad.gtn");
  return input;
}

gtn::Ordered ordered(const GtnInput& input) { return {input.graph, input.order}; }

/// Ops of less work than this, in arcs, keep the GIL: where several threads run small graphs,
/// handing it over takes longer than the op.
constexpr int64_t kSmallWork = 512, kSmallComposition = int64_t{1} << 14;

/// Releases the GIL unless the work is small. Only for work on the calling thread: other threads
/// may need the GIL to free arrays of Python.
class MaybeRelease {
 public:
  explicit MaybeRelease(bool is_small) {
    if (!is_small) release_.emplace();
  }

 private:
  std::optional<nb::gil_scoped_release> release_;
};

/// Nodes and arcs: what an op may read to derive values from a graph.
int64_t size_of(const Graph& graph) { return int64_t{graph.num_nodes()} + graph.num_arcs(); }
bool is_small(const Graph& graph) { return !graph.product() && size_of(graph) <= kSmallWork; }
bool is_small(const Graph& first, const Graph& second) {
  return !first.product() && !second.product() &&
         std::max(size_of(first), size_of(second)) <= kSmallComposition &&
         int64_t{first.num_arcs()} * second.num_arcs() <= kSmallComposition;
}

/// Binds an op of one graph, and for a list of graphs.
template <class Op>
void def_unary(nb::module_& m, const char* name, const char* op_name, Op op) {
  m.def(
      name,
      [op_name, op](const GtnInput& graph) {
        const MaybeRelease release(is_small(graph.graph));
        return to_gtn(op(checked(op_name, graph)));
      },
      "graph"_a);
  m.def(
      name,
      [op_name, op](const std::vector<GtnInput>& graphs) {
        nb::gil_scoped_release release;
        int64_t work = 0;
        for (const GtnInput& graph : graphs) work += work_of(graph.graph);
        return all_to_gtn(map_batch(
            op_name, graphs.size(), [&](size_t i) { return op(checked(op_name, graphs[i])); },
            work));
      },
      "graphs"_a);
}

/// Binds an op of two graphs, and for two lists of the same length.
template <class Op>
void def_binary(nb::module_& m, const char* name, const char* op_name, Op op) {
  m.def(
      name,
      [op_name, op](const GtnInput& first, const GtnInput& second) {
        const MaybeRelease release(is_small(first.graph, second.graph));
        return to_gtn(op(checked(op_name, first), checked(op_name, second)));
      },
      "first"_a, "second"_a);
  m.def(
      name,
      [op_name, op](const std::vector<GtnInput>& first, const std::vector<GtnInput>& second) {
        nb::gil_scoped_release release;
        const auto at = [](const auto& list, size_t i) -> const GtnInput& {
          return list[list.size() == 1 ? 0 : i];
        };
        const size_t size = batch_size(op_name, first.size(), second.size());
        int64_t work = 0;
        for (size_t i = 0; i < size; ++i) {
          const Graph &a = at(first, i).graph, &b = at(second, i).graph;
          work += gtn::is_deferred(a, b) ? 1 : work_of(a) + work_of(b);
        }
        return all_to_gtn(map_batch(
            op_name, size,
            [&](size_t i) {
              return op(checked(op_name, at(first, i)), checked(op_name, at(second, i)));
            },
            work));
      },
      "first"_a, "second"_a);
}

/// Wraps an op of arcgrad on one graph.
template <class Op>
auto plain(Op op) {
  return [op](const GtnInput& input) { return op(input.graph); };
}

/// Calls backward(). As in gtn, a freed tape is an invalid argument.
void differentiate(std::span<const Graph> roots, std::span<const Graph> seeds, bool retain_graph) {
  const auto var = roots.size() == 1 ? roots[0].var() : nullptr;
  const MaybeRelease release(var && var->entry && var->entry->work <= kSmallWork);
  try {
    backward(roots, seeds, retain_graph, false);
  } catch (const FreedTapeError& error) {
    throw std::invalid_argument(error.what());
  }
}

void def_scores(nb::module_& m) {
  m.def(
      "gtn_forward_score",
      [](const GtnInput& graph) {
        const MaybeRelease release(is_small(graph.graph));
        return to_gtn(gtn::forward_score(checked("forward_score", graph).graph));
      },
      "graph"_a);
  m.def(
      "gtn_forward_score",
      [](const std::vector<GtnInput>& inputs) {
        std::vector<Graph> graphs;
        for (const GtnInput& input : inputs)
          graphs.push_back(checked("forward_score", input).graph);
        nb::gil_scoped_release release;
        return all_to_gtn(gtn::forward_score(graphs));
      },
      "graphs"_a);
  def_unary(m, "gtn_viterbi_score", "viterbi_score",
            [](const GtnInput& graph) { return gtn::viterbi_score(ordered(graph)); });
  def_unary(m, "gtn_viterbi_path", "viterbi_path",
            [](const GtnInput& graph) { return gtn::viterbi_path(ordered(graph)); });
}

}  // namespace

void init_gtn(nb::module_& m) {
  init_gtn_graph(m);
  def_scores(m);
  def_unary(m, "gtn_clone", "clone", plain(clone));
  def_unary(m, "gtn_closure", "closure",
            plain([](const Graph& graph) { return closure_as("closure", graph); }));
  def_unary(m, "gtn_negate", "negate", plain(negate));
  def_unary(m, "gtn_project_input", "project_input", plain(project_input));
  def_unary(m, "gtn_project_output", "project_output", plain(project_output));
  def_binary(m, "gtn_compose", "compose", [](const GtnInput& first, const GtnInput& second) {
    return gtn::compose(ordered(first), ordered(second), false);
  });
  def_binary(m, "gtn_intersect", "intersect", [](const GtnInput& first, const GtnInput& second) {
    return gtn::compose(ordered(first), ordered(second), true);
  });
  m.def(
      "gtn_remove",
      [](const GtnInput& graph, int64_t ilabel, int64_t olabel) {
        const int32_t in = to_int32("remove", "the input label", ilabel);
        const int32_t out = to_int32("remove", "the output label", olabel);
        nb::gil_scoped_release release;
        return to_gtn(gtn::remove(checked("remove", graph).graph, in, out, graph.order));
      },
      "graph"_a, "ilabel"_a, "olabel"_a);
  m.def(
      "gtn_backward",
      [](const Graph& graph, bool retain_graph) {
        if (!graph.calc_grad()) return;
        const Graph root = graph.snapshot();
        differentiate({&root, 1}, {}, retain_graph);
      },
      "graph"_a, "retain_graph"_a, "Differentiates a graph, if it requires a gradient.");
  m.def(
      "gtn_backward",
      [](const std::vector<Graph>& graphs, const std::vector<Graph>& seeds, bool retain_graph) {
        differentiate(snapshots(graphs), snapshots(seeds), retain_graph);
      },
      "graphs"_a, "seeds"_a, "retain_graph"_a);
  m.def(
      "gtn_linear_graph",
      [](int64_t frames, int64_t labels, bool calc_grad) {
        return GtnGraph(linear_graph(to_int32("linear_graph", "the number of frames", frames),
                                     to_int32("linear_graph", "the number of labels", labels),
                                     calc_grad));
      },
      "frames"_a, "labels"_a, "calc_grad"_a);
  m.def(
      "gtn_without_nan",
      [](const Graph& graph) {
        const Graph input = graph.snapshot();
        nb::gil_scoped_release release;
        return gtn::without_nan(input);
      },
      "graph"_a, "The graph with -inf in place of NaN weights.");
  m.def(
      "to_gtn", [](const Graph& graph) { return to_gtn(graph); }, "graph"_a,
      "A graph as a result of gtn, which keeps its gradient unless it is a large product.");
  m.def("to_gtn", [](const std::vector<Graph>& graphs) { return all_to_gtn(graphs); }, "graphs"_a);
}

}  // namespace arcgrad::bindings
