#include "arcgrad/tokens.h"

#include "common.h"

namespace arcgrad::bindings {

void init_tokens(nb::module_& m) {
  m.def(
      "ctc_graph",
      [](nb::handle target, int64_t blank, bool calc_grad, nb::object dtype) -> nb::object {
        const char* op = "ctc_graph";
        const DType kind = to_dtype(op, dtype);
        const int32_t label = to_int32(op, "the blank", blank);
        const auto is_batch = [&] {
          if (nb::hasattr(target, "ndim")) return nb::cast<int>(target.attr("ndim")) > 1;
          if (!nb::isinstance<nb::sequence>(target) || nb::len(target) == 0) return false;
          nb::object first = nb::borrow(target)[0];
          return nb::isinstance<nb::sequence>(first) || nb::hasattr(first, "shape");
        };
        if (!is_batch())
          return nb::cast(ctc_graph(to_ints(op, "the target", target), label, calc_grad, kind));
        const nb::sequence list = nb::cast<nb::sequence>(target);
        nb::list out;
        const size_t size = nb::len(list);
        for (size_t i = 0; i < size; ++i) {
          try {
            out.append(
                ctc_graph(to_ints(op, "the target", nb::object(list[i])), label, calc_grad, kind));
          } catch (const std::invalid_argument&) {
            rethrow_for_element(op, i, size);
          }
        }
        return out;
      },
      "target"_a, "blank"_a = 0, nb::kw_only(), "calc_grad"_a = false, "dtype"_a = "float32",
      nb::sig(
          "def ctc_graph(target: typing.Any, blank: int = 0, *, calc_grad: bool = False, dtype: "
          "typing.Any = 'float32') -> typing.Any"),
      R"(
The alignments of a target under connectionist temporal classification (CTC).

Every label lasts one frame or more, blanks may stand anywhere, and between equal labels one blank
must.

Args:
    target: The labels of the target, which may be none; or a list of targets.
    blank: The label of the blank.
    calc_grad: Whether backward computes gradients for the arcs.
    dtype: The type of the weights, which are all 0.

Returns:
    A graph with ``2 * len(target) + 1`` nodes, or a list of graphs.

Raises:
    ValueError: If a label is negative or is the blank; the message names it.

>>> import arcgrad as ag
>>> ag.tokens.ctc_graph([1, 2], blank=0).num_nodes()
5
>>> emissions = ag.linear_graph(2, 3)
>>> round(ag.forward_score(ag.intersect(ag.tokens.ctc_graph([1]), emissions)).item(), 4)  # log 3
1.0986
)");
}

}  // namespace arcgrad::bindings
