// Binds `explain`, the limit on kept frames, and the test hooks of the trellis.

#include "arcgrad/runtime/isa.h"
#include "arcgrad/trellis/explain.h"
#include "arcgrad/trellis/testing.h"
#include "common.h"

namespace arcgrad::bindings {

void init_trellis(nb::module_& m) {
  using trellis::Choice;
  nb::class_<Choice>(m, "Explanation", R"(
The kernel that computes the score of a graph, as :func:`explain` returns it.

>>> import arcgrad as ag
>>> ag.explain(ag.linear_graph(1, 2)).kernel
'frames'
)")
      .def_prop_ro(
          "kernel", [](const Choice& self) { return trellis::name(self.kernel); },
          "``diagonal``, ``lanes``, ``dense``, ``csr``, ``frames`` or ``materialised``.")
      .def_ro("reason", &Choice::reason, "Why this kernel was chosen.")
      .def("__repr__", [](const Choice& self) {
        return text("Explanation(kernel='", trellis::name(self.kernel), "', reason='", self.reason,
                    "')");
      });
  m.def(
      "explain", [](const Graph& graph) { return trellis::explain({graph.snapshot()})[0]; },
      "graph"_a, R"(
Explains which kernel would compute the score of a graph, and why.

The score of the product of a graph with emissions is computed without building the product. The
kernel depends on the graph and, for a list, on which products have the same graph:

- ``diagonal``: banded graphs, whose arcs lie on a few diagonals of the transition matrix, such as
  the alignments of a target.
- ``lanes``: a graph that several examples have in common; they run side by side in vectors.
- ``dense``: graphs with nearly all transitions between labels, such as a bigram, by matrix
  products.
- ``csr``: any other graph.
- ``frames``: emissions alone, whose frames are independent.
- ``materialised``: graphs with explicit arcs, and products that must be built.

Args:
    graph: A graph, or a list of graphs that would be scored in one call.

Returns:
    An :class:`Explanation` with ``kernel`` and ``reason``, or a list of them.

>>> import arcgrad as ag
>>> ag.explain(ag.intersect(ag.tokens.ctc_graph([1, 2, 2]), ag.linear_graph(9, 3))).kernel
'diagonal'
)");
  m.def(
      "explain",
      [](const std::vector<Graph>& graphs) { return trellis::explain(snapshots(graphs)); },
      "graph"_a);
  m.def(
      "set_history_limit",
      [](const Integer& num_bytes) {
        const char* op = "set_history_limit";
        const auto limit = to_int64(op, "the number of bytes", num_bytes);
        if (!limit) throw nb::type_error("set_history_limit: the limit must be a whole number");
        trellis::set_history_limit(*limit);
      },
      "num_bytes"_a, R"(
Sets how many bytes the scores of one call may keep for their gradients. The default is 256 MB.

Beyond the limit, the forward pass keeps about the square root of the number of frames, and
:func:`backward` recomputes the others. The results are the same; the time is at most 1.6 times as
long.

>>> import arcgrad as ag
>>> ag.set_history_limit(64 << 20)
>>> ag.get_history_limit()
67108864
>>> ag.set_history_limit(256 << 20)
)");
  m.def("get_history_limit", &trellis::get_history_limit, R"(
Returns the limit that :func:`set_history_limit` sets, in bytes.

>>> import arcgrad as ag
>>> ag.get_history_limit()
268435456
)");

  m.def(
      "force_kernel",
      [](const std::optional<std::string>& name) { trellis::force_kernel(name.value_or("")); },
      "name"_a.none(), "For tests: uses this kernel for every product.");
  m.def("force_baseline", &force_baseline, "force"_a,
        "For tests: uses the portable loops although the processor supports wider vectors.");
  m.def("force_history_stride", &trellis::force_history_stride, "stride"_a,
        "For tests: keeps every `stride`-th frame; 0 restores the usual choice.");
  m.def(
      "frame_scores",
      [](const Graph& product) { return trellis::frame_scores(product.snapshot()); }, "product"_a,
      "For tests: the log of the sum of the posteriors of each frame, before normalization.");
}

}  // namespace arcgrad::bindings
