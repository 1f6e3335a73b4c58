#include "arcgrad/runtime/isa.h"
#include "arcgrad/trellis/explain.h"
#include "arcgrad/trellis/testing.h"
#include "common.h"

namespace arcgrad::bindings {

void init_trellis(nb::module_& m) {
  using trellis::Choice;
  nb::class_<Choice>(m, "Explanation", R"(
How the score of a graph is computed, as :func:`explain` tells.

>>> import arcgrad as ag
>>> ag.explain(ag.linear_graph(1, 2)).kernel
'frames'
)")
      .def_prop_ro(
          "kernel", [](const Choice& self) { return trellis::name(self.kernel); },
          "``diagonal``, ``lanes``, ``dense``, ``csr``, ``frames`` or ``materialised``.")
      .def_ro("reason", &Choice::reason, "Why this one.")
      .def("__repr__", [](const Choice& self) {
        return text("Explanation(kernel='", trellis::name(self.kernel), "', reason='", self.reason,
                    "')");
      });
  m.def(
      "explain", [](const Graph& graph) { return trellis::explain({graph.snapshot()})[0]; },
      "graph"_a, R"(
How the scores of a graph would be computed, and why so.

The product of a graph with emissions is not built for its score. What runs instead depends on the
graph, and for a list on what the products share:

- ``diagonal``: nodes in a row whose arcs go few distances, such as alignments of a target.
- ``lanes``: a graph that several examples share, side by side in vectors.
- ``dense``: nearly all transitions between labels, such as a bigram; by matrix products.
- ``csr``: any other graph.
- ``frames``: emissions alone, whose frames do not depend on each other.
- ``materialised``: an ordinary graph, or a product that has to be built.

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
      [](const GraphList& graphs) { return trellis::explain(snapshots("explain", graphs)); },
      "graph"_a);
  m.def("set_history_limit", &trellis::set_history_limit, "num_bytes"_a, R"(
Sets how much memory the scores of one call may keep for their gradients.

Beyond it, only about the square root of all frames is kept and the rest is computed again in
:func:`backward`: the same numbers, in at most 1.6 times the time. The default is 256 MB.

>>> import arcgrad as ag
>>> ag.set_history_limit(64 << 20)
>>> ag.get_history_limit()
67108864
>>> ag.set_history_limit(256 << 20)
)");
  m.def("get_history_limit", &trellis::get_history_limit, R"(
How many bytes the scores of one call may keep for their gradients; see :func:`set_history_limit`.

>>> import arcgrad as ag
>>> ag.get_history_limit()
268435456
)");

  m.def(
      "force_kernel",
      [](const std::optional<std::string>& name) { trellis::force_kernel(name.value_or("")); },
      "name"_a.none(), "For tests: use this kernel for every product.");
  m.def("force_baseline", &force_baseline, "force"_a,
        "For tests: use the portable loops although the processor can do more.");
  m.def("force_history_stride", &trellis::force_history_stride, "stride"_a,
        "For tests: keep every so many frames; 0 for the usual choice.");
  m.def(
      "frame_scores",
      [](const Graph& product) { return trellis::frame_scores(product.snapshot()); }, "product"_a,
      "For tests: the log of the summed posteriors of each frame, not normalized.");
}

}  // namespace arcgrad::bindings
