// Bindings of token rules and token graphs, with their documentation.

#include "arcgrad/tokens/tokens.h"

#include <nanobind/stl/pair.h>

#include <utility>

#include "common.h"

namespace arcgrad::bindings {
namespace {

using Limit = std::optional<int64_t>;

Blank to_blank(const std::string& name) {
  if (name == "none") return Blank::none;
  if (name == "forced") return Blank::forced;
  if (name == "optional") return Blank::optional;
  fail("Tokens", "blank must be 'none', 'forced' or 'optional', but it is '", name, "'");
}

const char* from_blank(Blank blank) {
  return blank == Blank::none ? "none" : blank == Blank::forced ? "forced" : "optional";
}

FrameRange to_frames(const char* op, const char* what, int64_t least, Limit most) {
  return {to_int32(op, what, least), most ? to_int32(op, what, *most) : kUnlimited};
}

Limit from_limit(int32_t most) { return most == kUnlimited ? Limit() : Limit(most); }

std::map<int32_t, FrameRange> to_overrides(nb::handle overrides) {
  const char* op = "Tokens";
  std::map<int32_t, FrameRange> out;
  if (overrides.is_none()) return out;
  if (!nb::isinstance<nb::mapping>(overrides) || !nb::hasattr(overrides, "items"))
    throw nb::type_error(
        text(op, ": overrides must be a mapping, but it is ", nb::repr(overrides).c_str()).c_str());
  for (nb::handle item : overrides.attr("items")()) {
    const nb::object key = item[0], value = item[1];
    int64_t label = 0;
    std::pair<int64_t, Limit> range;
    if (!nb::try_cast(key, label) || !nb::try_cast(value, range))
      throw nb::type_error(text(op,
                                ": overrides must map a label to a pair (min_frames, max_frames), "
                                "but one maps ",
                                nb::repr(key).c_str(), " to ", nb::repr(value).c_str())
                               .c_str());
    out[to_int32(op, "a label of overrides", label)] =
        to_frames(op, "a number of frames", range.first, range.second);
  }
  return out;
}

nb::dict from_overrides(const std::map<int32_t, FrameRange>& overrides) {
  nb::dict out;
  for (const auto& [label, frames] : overrides)
    out[nb::int_(label)] = nb::make_tuple(frames.least, from_limit(frames.most));
  return out;
}

/// The constructor arguments of these tokens, without defaults.
nb::dict arguments(const Tokens& tokens) {
  const Tokens::Options& options = tokens.options();
  nb::dict out;
  if (options.blank != Blank::none) {
    out["blank"] = from_blank(options.blank);
    out["blank_label"] = options.blank_label;
  }
  if (!options.allow_repeats) out["allow_repeats"] = false;
  if (options.frames.least != 1) out["min_frames"] = options.frames.least;
  if (options.frames.is_limited()) out["max_frames"] = options.frames.most;
  if (options.blanks.least != 0) out["min_blanks"] = options.blanks.least;
  if (options.blanks.is_limited()) out["max_blanks"] = options.blanks.most;
  if (!options.overrides.empty()) out["overrides"] = from_overrides(options.overrides);
  return out;
}

std::string describe(const Tokens& tokens) {
  std::string out = text("Tokens(", tokens.num_labels());
  for (const auto& [name, value] : arguments(tokens))
    out += text(", ", nb::str(name).c_str(), "=", nb::repr(value).c_str());
  return out + ")";
}

nb::object collapse(const Tokens& tokens, nb::handle frames, nb::handle lengths) {
  const Labels labels = to_labels("collapse", "the frames", frames, lengths);
  if (!labels.is_list) return nb::cast(tokens.collapse(labels.sequences[0]));
  std::vector<std::vector<int32_t>> out;
  {
    nb::gil_scoped_release release;
    out = tokens.collapse(labels.sequences);
  }
  return nb::cast(std::move(out));
}

int32_t to_num_labels(int64_t num_labels) {
  return to_int32("Tokens", "the number of labels", num_labels);
}

int32_t to_blank_label(int64_t label) { return to_int32("Tokens", "the blank", label); }

void init_class(nb::module_& m) {
  nb::class_<Tokens>(m, "Tokens", nb::is_final(), explained_constructor(), R"(
The rules by which frame labels collapse to tokens.

A token lasts one or more frames with its label. If there is a blank, frames with the blank label may
separate tokens and emit nothing. The named constructors (:meth:`ctc`, ...) make the usual kinds.

Args:
    num_labels: The number of frame labels, including the blank. All other labels are tokens.
    blank: ``"none"``: there is no blank. ``"forced"``: at least one blank before, between and after
        tokens. ``"optional"``: any number of blanks there.
    blank_label: The label of the blank.
    allow_repeats: Whether equal tokens may follow each other without a blank between them. If so,
        frames may have several segmentations.
    min_frames: The minimum duration of a token in frames.
    max_frames: The maximum duration of a token in frames; None for no limit.
    min_blanks: The minimum number of blanks between two tokens. It does not apply before the first
        token or after the last one.
    max_blanks: The maximum number of blanks between two tokens; None for no limit.
    overrides: A mapping from a label to its own ``(min_frames, max_frames)``.

Raises:
    ValueError: If a number is out of range, or an option needs a blank and ``blank`` is ``"none"``.

Tokens are immutable, can be compared, hashed, copied and pickled.

>>> import arcgrad as ag
>>> tokens = ag.tokens.Tokens(4, blank="optional", max_frames=2, overrides={3: (2, None)})
>>> tokens
Tokens(4, blank='optional', blank_label=0, max_frames=2, overrides={3: (2, None)})
>>> tokens.collapse([1, 1, 0, 2, 3, 3, 3, 3])
[1, 2, 3]
)")
      .def(
          "__init__",
          [](Tokens* self, int64_t num_labels, const std::string& blank, int64_t blank_label,
             Flag allow_repeats, int64_t min_frames, Limit max_frames, int64_t min_blanks,
             Limit max_blanks, nb::handle overrides) {
            const char* op = "Tokens";
            new (self)
                Tokens(to_num_labels(num_labels),
                       {.blank = to_blank(blank),
                        .blank_label = to_blank_label(blank_label),
                        .allow_repeats = allow_repeats,
                        .frames = to_frames(op, "a number of frames", min_frames, max_frames),
                        .overrides = to_overrides(overrides),
                        .blanks = to_frames(op, "a number of blanks", min_blanks, max_blanks)});
          },
          "num_labels"_a, nb::kw_only(), "blank"_a = "none", "blank_label"_a = 0,
          "allow_repeats"_a = true, "min_frames"_a = 1, "max_frames"_a = nb::none(),
          "min_blanks"_a = 0, "max_blanks"_a = nb::none(), "overrides"_a = nb::none(),
          nb::sig("def __init__(self, num_labels: int, *, blank: typing.Literal['none', 'forced', "
                  "'optional'] = 'none', blank_label: int = 0, allow_repeats: bool = True, "
                  "min_frames: int = 1, max_frames: int | None = None, min_blanks: int = 0, "
                  "max_blanks: int | None = None, overrides: collections.abc.Mapping[int, "
                  "tuple[int, int | None]] | None = None) -> None"))
      .def_static(
          "asg", [](int64_t num_labels) { return Tokens::asg(to_num_labels(num_labels)); },
          "num_labels"_a, R"(
Tokens of the automatic segmentation criterion (ASG): one frame or more each, no blank.

A token that is repeated in a target lasts one frame or more each time, so the frames ``[1, 1, 1]``
align with the target ``[1, 1]`` in two ways.

>>> import arcgrad as ag
>>> ag.tokens.Tokens.asg(3).collapse([2, 2, 1])
[2, 1]
)")
      .def_static(
          "ctc",
          [](int64_t num_labels, int64_t blank_label) {
            return Tokens::ctc(to_num_labels(num_labels), to_blank_label(blank_label));
          },
          "num_labels"_a, "blank_label"_a = 0, R"(
Tokens of connectionist temporal classification (CTC).

Tokens last one frame or more, blanks are optional, and equal tokens need a blank between them.

>>> import arcgrad as ag
>>> ag.tokens.Tokens.ctc(3).collapse([0, 1, 1, 0, 1, 2])
[1, 1, 2]
)")
      .def_static(
          "spike",
          [](int64_t num_labels, int64_t blank_label) {
            return Tokens::spike(to_num_labels(num_labels), to_blank_label(blank_label));
          },
          "num_labels"_a, "blank_label"_a = 0, R"(
Tokens of one frame each with optional blanks ("spike" CTC).

>>> import arcgrad as ag
>>> ag.tokens.Tokens.spike(3).collapse([0, 1, 1, 0, 1, 2])
[1, 1, 1, 2]
)")
      .def_static(
          "limited",
          [](int64_t num_labels, int64_t max_frames, int64_t min_frames, int64_t blank_label) {
            return Tokens::limited(
                to_num_labels(num_labels),
                to_frames("Tokens", "a number of frames", min_frames, max_frames),
                to_blank_label(blank_label));
          },
          "num_labels"_a, "max_frames"_a = 2, nb::kw_only(), "min_frames"_a = 1,
          "blank_label"_a = 0, R"(
Tokens of limited length with optional blanks ("duration-limited" CTC).

>>> import arcgrad as ag
>>> ag.tokens.Tokens.limited(3, 2).collapse([1, 1, 0, 2, 2, 2])
[1, 2, 2]
)")
      .def_static(
          "spaced",
          [](int64_t num_labels, int64_t min_blanks, Limit max_blanks, int64_t blank_label) {
            return Tokens::spaced(to_num_labels(num_labels),
                                  to_frames("Tokens", "a number of blanks", min_blanks, max_blanks),
                                  to_blank_label(blank_label));
          },
          "num_labels"_a, "min_blanks"_a, "max_blanks"_a.none(), nb::kw_only(), "blank_label"_a = 0,
          R"(
Tokens with a limited number of blanks between them ("equally spaced" CTC).

>>> import arcgrad as ag
>>> ag.tokens.Tokens.spaced(3, 2, 3).collapse([1, 1, 0, 0, 2, 0, 0, 0, 2, 0])
[1, 2, 2]
)")
      .def_prop_ro("num_labels", &Tokens::num_labels,
                   "The number of frame labels, including the blank.")
      .def_prop_ro(
          "blank", [](const Tokens& self) { return from_blank(self.options().blank); },
          "``none``, ``forced`` or ``optional``.")
      .def_prop_ro(
          "blank_label",
          [](const Tokens& self) {
            return self.rules().has_blank() ? Limit(self.options().blank_label) : Limit();
          },
          "The label of the blank; None without a blank.")
      .def_prop_ro(
          "allow_repeats", [](const Tokens& self) { return self.options().allow_repeats; },
          "Whether equal tokens may follow each other without a blank between them.")
      .def_prop_ro(
          "min_frames", [](const Tokens& self) { return self.options().frames.least; },
          "The minimum duration of a token in frames.")
      .def_prop_ro(
          "max_frames", [](const Tokens& self) { return from_limit(self.options().frames.most); },
          "The maximum duration of a token in frames; None for no limit.")
      .def_prop_ro(
          "min_blanks", [](const Tokens& self) { return self.options().blanks.least; },
          "The minimum number of blanks between two tokens.")
      .def_prop_ro(
          "max_blanks", [](const Tokens& self) { return from_limit(self.options().blanks.most); },
          "The maximum number of blanks between two tokens; None for no limit.")
      .def_prop_ro(
          "overrides", [](const Tokens& self) { return from_overrides(self.options().overrides); },
          "Labels with their own ``(min_frames, max_frames)``.")
      .def(
          "graph",
          [](const Tokens& self) { return run_op("Tokens.graph", [&] { return self.graph(); }); },
          R"(
The full token graph: a transducer from the labels of frames to sequences of tokens.

It has one path per segmentation of the frames. The graph is built once and directly. Its number of
arcs is linear in the number of tokens: if repeats are not allowed, epsilon arcs along a binary tree
join each token to every other one.

Returns:
    A graph whose weights are 0.

>>> import arcgrad as ag
>>> graph = ag.tokens.Tokens.ctc(1000).graph()
>>> graph.num_arcs() < 10 * 1000
True
>>> alignments = ag.project_input(ag.compose(ag.tokens.Tokens.asg(2).graph(), ag.chain_graph([1])))
>>> ag.forward_score(ag.intersect(alignments, ag.linear_graph(5, 2))).item()  # one: 11111
0.0
)")
      .def("collapse", &collapse, "frames"_a, nb::kw_only(), "lengths"_a = nb::none(), R"(
Collapse frame labels to tokens.

If several token sequences are possible (only if repeats are allowed), the result is the shortest one:
each run of frames becomes as few tokens as the limits allow.

Args:
    frames: The frame labels. Several sequences are a list of these, a matrix with one sequence per
        row, or one vector of all labels with ``lengths``.
    lengths: The number of frames per sequence, for a padded matrix or a concatenated vector. For a
        matrix also a mask of bools of its shape, true for the frames of each sequence.

Returns:
    A list of labels, or a list of such lists.

Raises:
    ValueError: If no token sequence matches the frames; the message names the frame and the rule.

>>> import arcgrad as ag
>>> ag.tokens.Tokens.ctc(3).collapse([[1, 1, 0, 1], [0, 2, 2, 0]])
[[1, 1], [2]]
)")
      .def(
          "__eq__",
          [](const Tokens& self, nb::handle other) -> nb::object {
            Tokens* tokens = nullptr;
            if (!nb::try_cast(other, tokens) || !tokens)
              return nb::borrow(nb::handle(Py_NotImplemented));
            return nb::bool_(self == *tokens);
          },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Tokens& self) { return nb::hash(nb::str(describe(self).c_str())); })
      .def("__repr__", &describe)
      .def("__copy__", [](const Tokens& self) { return self; })
      .def(
          "__deepcopy__", [](const Tokens& self, nb::handle) { return self; }, "memo"_a)
      .def("__getstate__",
           [](const Tokens& self) { return nb::make_tuple(self.num_labels(), arguments(self)); })
      .def("__setstate__", [](nb::handle self, const nb::tuple& state) {
        self.attr("__init__")(state[0], **nb::cast<nb::dict>(state[1]));
      });
}

}  // namespace

void init_tokens(nb::module_& m) {
  init_class(m);
  m.def(
      "token_graph",
      [](int64_t label, int64_t min_frames, Limit max_frames) {
        const char* op = "token_graph";
        return token_graph(to_int32(op, "the label", label),
                           to_frames(op, "a number of frames", min_frames, max_frames));
      },
      "label"_a, nb::kw_only(), "min_frames"_a = 1, "max_frames"_a = nb::none(), R"(
Build the graph of one token: it consumes frames with the token's label and emits the token once.

By default a token lasts one frame or more, as in ASG and CTC. ``max_frames=1`` gives "spike" CTC,
``max_frames=2`` a "duration-limited" CTC.

Args:
    label: The label of the token.
    min_frames: The minimum duration in frames.
    max_frames: The maximum duration in frames; None for no limit.

Returns:
    A transducer that emits the token with the first frame. Its weights are 0.

Raises:
    ValueError: If the label is negative, or the limits are not in order.

>>> import arcgrad as ag
>>> ag.tokens.token_graph(1)
Graph(2 nodes, 2 arcs, start [0], accept [1], float32)
  0 -> 1  1:1/0
  1 -> 1  1:ε/0
)");
  m.def(
      "blank_graph",
      [](int64_t blank, int64_t min_frames, Limit max_frames) {
        const char* op = "blank_graph";
        return blank_graph(to_int32(op, "the blank", blank),
                           to_frames(op, "a number of frames", min_frames, max_frames));
      },
      "blank"_a = 0, nb::kw_only(), "min_frames"_a = 0, "max_frames"_a = nb::none(), R"(
Build the graph of the blank: it consumes frames with the blank label and emits nothing.

By default it accepts any number of frames, including none. Limits give the "equally spaced" CTC of
the paper when used in :func:`closed_graph`.

Args:
    blank: The label of the blank.
    min_frames: The minimum duration in frames.
    max_frames: The maximum duration in frames; None for no limit.

Returns:
    A transducer that emits nothing. Its weights are 0.

Raises:
    ValueError: If the label is negative, or the limits are not in order.

>>> import arcgrad as ag
>>> ag.tokens.blank_graph(0)
Graph(1 node, 1 arc, start [0], accept [0], float32)
  0 -> 0  0:ε/0
)");
  m.def(
      "closed_graph",
      [](const std::vector<Graph>& token_graphs, std::optional<Graph> blank_graph) {
        const std::vector<Graph> tokens = snapshots(token_graphs);
        const Graph blank = blank_graph ? blank_graph->snapshot() : Graph(nullptr);
        return run_op("closed_graph", [&] { return closed_graph(tokens, blank); });
      },
      "token_graphs"_a, "blank_graph"_a = nb::none(), R"(
Build the full token graph from the graphs of single tokens, by operations on graphs.

.. math:: T = (T_1 + \ldots + T_C)^* \quad\text{or}\quad T = B\,((T_1 + \ldots + T_C)\,B)^*

with a blank graph B. The blank is not a member of the union, because two blanks in a row would then
be one repetition or two, so that sequences would have several paths.

Args:
    token_graphs: The graphs of single tokens, for example from :func:`token_graph`. Each may be any
        graph that does not accept the empty string.
    blank_graph: The graph before, between and after tokens, for example from :func:`blank_graph`.

Returns:
    A graph with one path per sequence of paths through the given graphs.

Gradient: as for :func:`union`, :func:`concat` and :func:`closure`.

:meth:`Tokens.graph` has fewer nodes and epsilon arcs, and can require a blank between equal tokens.

>>> import arcgrad as ag
>>> from arcgrad.tokens import blank_graph, closed_graph, token_graph
>>> spike, long = token_graph(1, max_frames=1), token_graph(2, min_frames=2)
>>> tokens = closed_graph([spike, long], blank_graph())
>>> alignments = ag.project_input(ag.compose(tokens, ag.chain_graph([1, 2])))
>>> score = ag.forward_score(ag.intersect(alignments, ag.linear_graph(4, 3)))
>>> round(score.item(), 4)  # log 4: 1222, 0122, 1022, 1220
1.3863
)");
}

}  // namespace arcgrad::bindings
