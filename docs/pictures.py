"""Pictures for the pages: graphs as inline SVG that takes its colors from the theme."""

import contextlib
import doctest
import html
import inspect
import io
import itertools
import os
import re
import tempfile
from pathlib import Path
from types import ModuleType
from unittest import mock

import arcgrad as ag

# The largest graph of an example that has a picture.
MAX_NODES, MAX_ARCS = 12, 24

_prefix = itertools.count()


def inline(graph: ag.Graph, prefix: str | None = None, color: object = None) -> str:
    """The picture of a graph for a page: without a file header, with a prefix before each id."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.svg"
        ag.draw(graph, path, color=color)
        return embedded(path.read_text(), prefix)


def embedded(text: str, prefix: str | None = None) -> str:
    """An SVG file as part of a page."""
    text = re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.S)
    return re.sub(r'\bid="', f'id="{prefix or f"g{next(_prefix)}"}-', text)


def row(graphs: list[tuple[str, ag.Graph]], colors: dict[str, object] | None = None) -> str:
    """Graphs side by side, each with a caption; `colors` has values for the arcs of some."""
    cells = ""
    for caption, graph in graphs:
        picture = inline(graph, color=(colors or {}).get(caption))
        cells += f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>"
    return f'<div class="graphs">{cells}</div>'


def example_picture(module: ModuleType, name: str) -> str:
    """Inputs and result of the last call of a function in its example.

    Empty if the function takes or returns no graph, or if they are too large to look at.
    """
    function = getattr(module, name)
    if not callable(function) or inspect.isclass(function):
        return ""
    calls: list[tuple[list[ag.Graph], list[ag.Graph]]] = []

    def record(*args, **kwargs):
        result = function(*args, **kwargs)
        calls.append((found_graphs(args), found_graphs([result])))
        return result

    example = doctest.DocTestParser().get_doctest(inspect.getdoc(function) or "", {}, name, None, 0)
    folder = os.getcwd()
    with (
        mock.patch.object(module, name, record),
        tempfile.TemporaryDirectory() as scratch,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        os.chdir(scratch)
        try:
            scope: dict[str, object] = {}
            for part in example.examples:
                exec(compile(part.source, name, "single"), scope)
        except Exception as error:  # the tests run the examples; here the picture is left out
            print(f"no picture of {name}: {error}")
            return ""
        finally:
            os.chdir(folder)
    if not calls:
        return ""
    given, made = calls[-1]
    if not given or not made or not all(is_small(graph) for graph in given + made):
        return ""
    captions = ["input"] if len(given) == 1 else [f"input {k + 1}" for k in range(len(given))]
    captions += ["result"] * len(made)
    return row(list(zip(captions, given + made, strict=True)))


def found_graphs(values) -> list[ag.Graph]:
    """The graphs among values and lists of values."""
    found = []
    for value in values:
        if isinstance(value, ag.Graph):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += found_graphs(value)
    return found


def is_small(graph: ag.Graph) -> bool:
    return 0 < graph.num_nodes() <= MAX_NODES and graph.num_arcs() <= MAX_ARCS
