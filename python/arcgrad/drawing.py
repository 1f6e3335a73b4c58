"""Pictures of graphs, laid out by Graphviz through ``pygraphviz`` (the extra ``draw``)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from . import _files
from ._arguments import checked, renamed
from ._core import Graph, SymbolTable, product_bound, to_dot

Symbols: TypeAlias = SymbolTable | dict[int, str] | list[str]

FORMATS = ("svg", "png", "pdf")

# A notebook draws every graph that it displays, so the picture must be quick.
NOTEBOOK_SIZE = 200
NOTEBOOK_SECONDS = 5.0

# The bound on the size of a product is loose, so one up to this bound is built to find its size.
BUILT_SIZE = 100_000

# Graphviz runs in its own process: a layout can take minutes even for a few hundred arcs, and in
# this process neither a time limit nor Ctrl-C could stop it.
_LAYOUT = """
import sys, pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
if sys.argv[1] == "png":
    graph.graph_attr["dpi"] = "150"
sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog="dot"))
"""


@checked
def draw(
    graph: Graph,
    file_name: str | os.PathLike[str],
    isymbols: Symbols | None = None,
    osymbols: Symbols | None = None,
    *,
    max_size: int = 2000,
    max_seconds: float = 60.0,
) -> None:
    """Draw a graph into an SVG, PNG or PDF file.

    Start nodes are bold, accept nodes have a double circle. An arc is labelled ``p:r/w`` with its
    input label, output label and weight, and ``p/w`` in an acceptor; epsilon is shown as ε.
    Weights are left out if all of them are 0.

    Args:
        graph: The graph.
        file_name: The file; its extension ``.svg``, ``.png`` or ``.pdf`` is the format. An
            existing file is replaced atomically.
        isymbols: The names of the input labels: a table, a dict or a list. By default the symbols
            of the graph, or else the numbers.
        osymbols: The names of the output labels.
        max_size: The largest number of nodes, and of arcs, that is drawn.
        max_seconds: The time limit of the layout.

    Raises:
        ImportError: If ``pygraphviz`` is not installed.
        ValueError: If the format is unknown, a label has no symbol, a symbol cannot be written, or
            the graph is too large.
        OSError: If the file cannot be written.
        TimeoutError: If the layout takes too long.

    >>> import arcgrad as ag
    >>> ag.draw(ag.chain_graph([2, 0, 1]), "cab.svg", ["a", "b", "c"])
    """
    path = Path(file_name)
    kind = path.suffix[1:].lower()
    if kind not in FORMATS:
        raise ValueError(
            f"draw: the file name must end in .svg, .png or .pdf, but it is {str(path)!r}; "
            f"for other formats use write_dot and Graphviz"
        )
    if not _has_graphviz():
        raise ImportError(
            "draw: pygraphviz is needed, but it is not installed; "
            "run `pip install arcgrad[draw]`, or use write_dot and Graphviz",
            name="pygraphviz",
        )
    size = _larger_size(graph, max_size)
    if size:
        raise ValueError(
            f"draw: the graph must have at most {max_size} nodes and {max_size} arcs, but it has "
            f"{size}; draw a smaller graph, raise max_size, or use write_dot and Graphviz"
        )
    with renamed("draw"):
        dot = to_dot(graph, isymbols, osymbols)
    picture = _render(graph, dot, kind, max_seconds)
    try:
        _files.write(path, picture)
    except OSError as error:
        raise OSError(error.errno, f"draw: cannot write {str(path)!r}: {error.strerror}") from None


def svg(graph: Graph) -> str | None:
    """The picture for a notebook, or None if it takes too long or cannot be drawn."""
    if not _has_graphviz() or _larger_size(graph, NOTEBOOK_SIZE):
        return None
    try:
        return _render(graph, to_dot(graph), "svg", NOTEBOOK_SECONDS).decode()
    except (TimeoutError, RuntimeError):
        return None


def _has_graphviz() -> bool:
    return find_spec("pygraphviz") is not None


def _larger_size(graph: Graph, limit: int) -> str:
    """The size of a graph in words if it is larger than the limit, else an empty string."""
    bound = product_bound(graph)
    if bound and max(bound) > max(limit, BUILT_SIZE):
        return f"up to {bound[0]} nodes and {bound[1]} arcs, as a lazy product"
    nodes, arcs = graph.num_nodes(), graph.num_arcs()
    return f"{nodes} nodes and {arcs} arcs" if max(nodes, arcs) > limit else ""


def _render(graph: Graph, dot: str, kind: str, max_seconds: float) -> bytes:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LAYOUT, kind],
            input=dot.encode(),
            capture_output=True,
            timeout=max_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f"draw: the layout must be found in {max_seconds:g} seconds, but it was not, for "
            f"{graph.num_nodes()} nodes and {graph.num_arcs()} arcs; "
            f"draw a smaller graph, raise max_seconds, or use write_dot and Graphviz"
        ) from None
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"draw: Graphviz must render the graph, but it failed: {reason}")
    return done.stdout
