"""The command ``arcgrad graph``: operations on files of graphs, without further packages."""

from __future__ import annotations

import argparse
import collections.abc
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any

import arcgrad as ag

# Exit codes: a comparison that does not hold, errors of the user, and Ctrl-C.
DIFFERENT, USER_ERROR, INTERRUPTED = 1, 2, 130

FORMATS = ("arcgrad", "openfst", "att", "k2", "gtn", "gtn-text")
TEXT_FORMATS = ("att", "k2", "gtn-text")
STANDARD_STREAMS = {"r": "/dev/stdin", "w": "/dev/stdout"}

# Public functions of graphs that are no operations on files.
_NOT_OPS = {
    *("backward", "draw", "explain", "grad", "hvp", "info", "outer_score"),
    *("save", "savetxt", "to_k2", "to_openfst", "write_dot"),
}

# Results with these names are one number, which is printed unless there is an output file.
_SCORES = re.compile(r".*_score|.*_loss|entropy|kl_divergence|expected|edit_distance")

_USAGE = """\
arcgrad graph info FILE...                  the size and the properties of graphs
arcgrad graph convert IN -o OUT -f FORMAT   write a graph in another format
arcgrad graph draw FILE -o PICTURE          draw a graph as SVG, PNG or PDF
arcgrad graph ops                           list the operations
arcgrad graph [apply] OP FILE... -o OUT     apply an operation
arcgrad graph OP --help                     the options of an operation

Files of arcgrad, OpenFst, Kaldi, k2 and gtn are recognized by their content. `-` is a pipe.
Formats: arcgrad, openfst, att (text of OpenFst), k2, gtn, gtn-text.
"""
_EXAMPLES = """\
examples:
  arcgrad graph info lexicon.fst
  arcgrad graph convert lexicon.fst -o lexicon.txt -f att
  arcgrad graph compose lexicon.fst grammar.fst -o lg.fst
  arcgrad graph apply determinize a.fst -o b.fst --semiring tropical
  arcgrad graph remove a.fst | arcgrad graph determinize - -o b.fst
  arcgrad graph best_paths a.fst --n 3 -o paths.far
  arcgrad graph draw a.fst -o a.svg --posteriors --best-path
  arcgrad graph equal a.fst b.fst && echo equal

exit codes: 0 success, 1 a comparison that does not hold, 2 an error, 130 Ctrl-C
"""


def main(arguments: Sequence[str]) -> int:
    """Run ``arcgrad graph`` with these arguments, and return its exit code."""
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the output ended. Python would report this again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, ValueError, TypeError, ImportError, RuntimeError, MemoryError) as error:
        if os.environ.get("ARCGRAD_TRACEBACK"):
            raise
        # An OSError of the core has the whole message there.
        text = error.strerror if isinstance(error, OSError) else str(error)
        message = " ".join(str(text).split())
        print(f"arcgrad: {message}", file=sys.stderr)
        return USER_ERROR


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE + "\n" + _EXAMPLES, end="")
        return 0 if arguments else USER_ERROR
    name, *rest = arguments
    if name == "apply":
        if rest and rest[0] in ("-h", "--help"):
            return _run(rest)
        if not rest or rest[0].startswith("-"):
            raise ValueError("graph apply: an operation must follow, but there is none")
        name, *rest = rest
    elif name in _COMMANDS:
        return _COMMANDS[name](rest)
    found = ops()
    if name not in found:
        raise ValueError(
            f"graph: the command must be one of {', '.join(_COMMANDS)}, apply or an operation "
            f"(see `arcgrad graph ops`), but it is {name!r}"
        )
    return _apply(name, found[name], rest)


# Operations


def ops() -> dict[str, Callable[..., Any]]:
    """The public functions whose first parameter is a graph or a list of graphs."""
    found = {}
    for name in sorted(set(ag.__all__) - _NOT_OPS):
        function = getattr(ag, name)
        if not callable(function) or inspect.isclass(function):
            continue
        first = next(iter(_parameters(function).values()), None)
        if first is not None and _takes_graphs(first):
            found[name] = function
    return found


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    signature = inspect.signature(function)
    if any(isinstance(p.annotation, str) for p in signature.parameters.values()):
        hints = typing.get_type_hints(function)
        parameters = [
            p.replace(annotation=hints.get(p.name, Any)) for p in signature.parameters.values()
        ]
        signature = signature.replace(parameters=parameters)
    return dict(signature.parameters)


def _documentation(function: Callable[..., Any]) -> str:
    """The documentation without the signature, which those of the core begin with."""
    text = inspect.getdoc(function) or function.__name__
    return text.partition("\n\n")[2] if text.startswith(f"{function.__name__}(") else text


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return (
        typing.get_args(annotation)
        if typing.get_origin(annotation) not in (None, list, tuple, dict, collections.abc.Sequence)
        else (annotation,)
    )


def _takes_graphs(parameter: inspect.Parameter) -> bool:
    """Whether a parameter without a default is a graph or a list of graphs."""
    is_graph = any(one is ag.Graph or _is_list(one) for one in _alternatives(parameter.annotation))
    return is_graph and parameter.default is inspect.Parameter.empty


def _is_list(annotation: Any) -> bool:
    return typing.get_args(annotation) == (ag.Graph,) and typing.get_origin(annotation) in (
        list,
        collections.abc.Sequence,
    )


def _apply(name: str, function: Callable[..., Any], arguments: list[str]) -> int:
    parameters = _parameters(function)
    graphs = [p for p in parameters.values() if _takes_graphs(p)]
    is_list = ag.Graph not in _alternatives(graphs[0].annotation)
    parser = _parser(name, _documentation(function))
    if is_list:
        parser.add_argument("files", nargs="+", metavar="file")
    for parameter in () if is_list else graphs:
        # Each appends to the same list.
        parser.add_argument("files", action="append", metavar=parameter.name)
    _add_input_options(parser)
    _add_output_options(parser)
    options = [p for p in parameters.values() if p not in graphs and _add_option(parser, p)]
    given = parser.parse_args(arguments)
    inputs = [_load(path, given) for path in given.files]
    keywords = {
        p.name: value for p in options if (value := getattr(given, f"option_{p.name}")) is not None
    }
    result = function(inputs, **keywords) if is_list else function(*inputs, **keywords)
    return _give(name, result, given)


def _add_option(parser: argparse.ArgumentParser, parameter: inspect.Parameter) -> bool:
    """Add an option for a parameter; False if its type has no form on a command line."""
    kinds = [one for one in _alternatives(parameter.annotation) if one is not type(None)]
    flag, target = "--" + parameter.name.replace("_", "-"), f"option_{parameter.name}"
    default = parameter.default
    is_required = default is inspect.Parameter.empty
    text = "required" if is_required else f"default: {default}"
    if kinds == [bool]:
        parser.add_argument(flag, dest=target, action=argparse.BooleanOptionalAction, help=text)
        return True
    kind = next((k for k in (int, float, str) if k in kinds), None)
    if kind is None:
        return False
    parser.add_argument(
        flag, dest=target, type=kind, required=is_required, help=text, metavar=kind.__name__
    )
    return True


def _give(name: str, result: Any, given: argparse.Namespace) -> int:
    """Print or save a result."""
    if isinstance(result, bool):
        print("yes" if result else "no")
        return 0 if result else DIFFERENT
    if isinstance(result, list) and all(isinstance(one, ag.Graph) for one in result):
        digits = len(str(len(result)))
        named = {str(i).zfill(digits): graph for i, graph in enumerate(result, 1)}
        path = _output(given, is_text=False)
        ag.save_archive(path, named, "stlist", label_offset=given.label_offset)
        return 0
    if not isinstance(result, ag.Graph):
        print(result)
        return 0
    if given.output == "-" and _SCORES.fullmatch(name) and result.num_arcs() == 1:
        print(repr(result.item()))
        return 0
    _save(result, given)
    return 0


# Commands


def _info(arguments: list[str]) -> int:
    parser = _parser("info", "Print the size and the properties of graphs.")
    parser.add_argument("files", nargs="+", metavar="file")
    _add_input_options(parser)
    given = parser.parse_args(arguments)
    for path in given.files:
        found = ag.info(_load(path, given))
        print(f"{path}\n{found}")
    return 0


def _convert(arguments: list[str]) -> int:
    parser = _parser("convert", "Write a graph in another format.")
    parser.add_argument("file")
    _add_input_options(parser)
    _add_output_options(parser)
    given = parser.parse_args(arguments)
    _save(_load(given.file, given), given)
    return 0


def _draw(arguments: list[str]) -> int:
    parser = _parser("draw", "Draw a graph as SVG, PNG or PDF.")
    parser.add_argument("file")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="PICTURE",
        help="a name that ends in .svg, .png or .pdf",
    )
    parser.add_argument("--posteriors", action="store_true", help="color arcs by their posteriors")
    parser.add_argument("--best-path", action="store_true", help="color the best path")
    parser.add_argument(
        "--max-size",
        type=int,
        default=2000,
        metavar="int",
        help="the largest number of nodes, and of arcs (default: 2000)",
    )
    _add_input_options(parser)
    given = parser.parse_args(arguments)
    graph = _load(given.file, given)
    color = ag.arc_posteriors(graph) if given.posteriors else None
    ag.draw(graph, given.output, color=color, best_path=given.best_path, max_size=given.max_size)
    return 0


def _list_ops(arguments: list[str]) -> int:
    _parser("ops", "List the operations.").parse_args(arguments)
    for name, function in ops().items():
        print(f"{name:22}{_documentation(function).splitlines()[0]}")
    return 0


_COMMANDS = {"info": _info, "convert": _convert, "draw": _draw, "ops": _list_ops}


# Options and files


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"arcgrad graph {name}",
        description=description.partition("\n>>>")[0].strip(),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files")
    group.add_argument(
        "--from",
        dest="input_format",
        choices=FORMATS,
        help="the format of the input (default: what its content shows)",
    )
    group.add_argument(
        "--label-offset",
        type=int,
        default=1,
        metavar="int",
        help="label k here is k + offset in files of OpenFst and k2 (default: 1)",
    )
    group.add_argument(
        "--acceptor",
        action=argparse.BooleanOptionalAction,
        help="whether text of OpenFst is an acceptor (default: by its columns)",
    )
    group.add_argument("--isymbols", metavar="FILE", help="symbols of the input labels, as text")
    group.add_argument("--osymbols", metavar="FILE", help="symbols of the output labels, as text")


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="the file to write (default: -, the standard output)",
    )
    group.add_argument(
        "-f",
        "--format",
        choices=FORMATS,
        help="the format to write (default: openfst for .fst, att for .txt, else arcgrad)",
    )
    group.add_argument(
        "--symbols", action="store_true", help="write symbols instead of numbers to text of OpenFst"
    )


def _load(path: str, given: argparse.Namespace) -> ag.Graph:
    tables = [
        ag.SymbolTable.load(file) if file else None for file in (given.isymbols, given.osymbols)
    ]
    graph = ag.load(
        STANDARD_STREAMS["r"] if path == "-" else path,
        given.input_format,
        label_offset=given.label_offset,
        acceptor=given.acceptor,
        isymbols=tables[0],
        osymbols=tables[1],
    )
    graph.calc_grad = False
    return graph


def _output(given: argparse.Namespace, *, is_text: bool) -> str:
    if given.output != "-":
        return str(given.output)
    if not is_text and sys.stdout.isatty():
        raise ValueError(
            "graph: a terminal must show text, but the format is binary; pass -o or -f att"
        )
    return STANDARD_STREAMS["w"]


def _save(graph: ag.Graph, given: argparse.Namespace) -> None:
    by_name = {".fst": "openfst", ".txt": "att"}
    chosen = given.format or by_name.get(os.path.splitext(given.output)[1], "arcgrad")
    ag.save(
        _output(given, is_text=chosen in TEXT_FORMATS),
        graph,
        chosen,
        label_offset=given.label_offset,
        symbols=given.symbols,
    )
