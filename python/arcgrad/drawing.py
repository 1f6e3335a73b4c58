"""Pictures of graphs, laid out by Graphviz through ``pygraphviz`` (the extra ``draw``)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _files
from ._arguments import checked, renamed
from ._core import Graph, SymbolTable, arc_posteriors, product_bound, to_dot

Symbols: TypeAlias = SymbolTable | dict[int, str] | list[str]

FORMATS = ("svg", "png", "pdf")

# A notebook draws every graph that it displays, so the picture must be quick.
NOTEBOOK_SIZE = 200
NOTEBOOK_SECONDS = 5.0

# Curved arcs, and fewer crossings, take Graphviz too long in larger graphs.
CURVED_SIZE = 150
_QUICK = "  splines=line\n  nslimit=1\n  nslimit1=1\n  mclimit=0.1\n"

# Arcs with values: the colours of the smallest and the largest value, and of 0 between them; the
# colour of the best path; the width of an arc with value 0, and how much wider others are.
_LOW, _ZERO, _HIGH, _BEST = "#b2182b", "#c8c8c8", "#08519c", "#e66101"
_THIN, _WIDER = 0.6, 3.4
_LEGEND_STEPS = 5

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
    color: Any = None,
    best_path: bool = False,
    max_size: int = 2000,
    max_seconds: float = 60.0,
) -> None:
    """Draw a graph into an SVG, PNG or PDF file.

    Start nodes are bold, accept nodes have a double circle. An arc is labelled ``p:r/w`` with its
    input label, output label and weight, and ``p/w`` in an acceptor; epsilon, phi and rho are shown
    as Greek letters.
    Weights are left out if all of them are 0.

    Args:
        graph: The graph.
        file_name: The file; its extension ``.svg``, ``.png`` or ``.pdf`` is the format. An
            existing file is replaced atomically.
        isymbols: The names of the input labels: a table, a dict or a list. By default the symbols
            of the graph, or else the numbers.
        osymbols: The names of the output labels.
        color: A value per arc, such as posteriors or a gradient: a graph with the same arcs, or an
            array. Arcs with larger values are wider and more blue, those with negative values more
            red, and a legend shows the scale.
        best_path: Whether the arcs of the best path are orange.
        max_size: The largest number of nodes, and of arcs, that is drawn.
        max_seconds: The time limit of the layout.

    Raises:
        ImportError: If ``pygraphviz`` is not installed.
        ValueError: If the format is unknown, a label has no symbol, a symbol cannot be written, the
            graph is too large, or there is not one finite value per arc.
        OSError: If the file cannot be written.
        TimeoutError: If the layout takes too long.

    >>> import arcgrad as ag
    >>> ag.draw(ag.chain_graph([2, 0, 1]), "cab.svg", ["a", "b", "c"])
    >>> graph = ag.union([ag.chain_graph([1, 2]), ag.chain_graph([1])])
    >>> ag.draw(graph, "union.svg", color=ag.arc_posteriors(graph), best_path=True)
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
    graph_style, arc_styles = _styles(graph, color, best_path)
    with renamed("draw"):
        dot = to_dot(graph, isymbols, osymbols, graph_style, arc_styles)
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
        dot = to_dot(graph, None, None, _styles(graph, None, False)[0])
        return _render(graph, dot, "svg", NOTEBOOK_SECONDS).decode()
    except (TimeoutError, RuntimeError):
        return None


def _styles(graph: Graph, color: Any, best_path: bool) -> tuple[str, list[str]]:
    """The attributes of the picture, and of each arc."""
    graph_style = _QUICK if graph.num_arcs() > CURVED_SIZE else ""
    if color is None and not best_path:
        return graph_style, []
    styles = [""] * graph.num_arcs()
    colors = ["#000000"] * graph.num_arcs()
    if color is not None:
        values = _values(graph, color)
        low, high = min(values.min(initial=0.0), 0.0), max(values.max(initial=0.0), 0.0)
        largest = max(high, -low) or 1.0
        colors = [_mix(value / largest) for value in values.tolist()]
        widths = _THIN + _WIDER * np.abs(values) / largest
        styles = [f"penwidth={width:.2f}" for width in widths.tolist()]
        graph_style += _legend(float(low), float(high), largest)
    if best_path:
        for arc in np.flatnonzero(arc_posteriors(graph, semiring="tropical").weights_to_numpy()):
            styles[arc] += f' fontcolor="{_BEST}"' + ("" if color is not None else " penwidth=2")
            # Beside the colour of its value, such an arc has a line in the colour of the path.
            colors[arc] = f"{colors[arc]}:{_BEST}" if color is not None else _BEST
    return graph_style, [f'{style} color="{c}"' for style, c in zip(styles, colors, strict=True)]


def _values(graph: Graph, color: Any) -> NDArray[np.float64]:
    if isinstance(color, Graph):
        color = color.weights_to_numpy()
    values = np.asarray(color, dtype=np.float64).ravel()
    if len(values) != graph.num_arcs():
        raise ValueError(
            f"draw: color must have one value per arc, but it has {len(values)} values and the "
            f"graph has {graph.num_arcs()} arcs"
        )
    if not np.isfinite(values).all():
        arc = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(
            f"draw: the values of color must be finite, but that of arc {arc} is {values[arc]}"
        )
    return values


def _mix(value: float) -> str:
    """The colour of a value between -1 and 1."""
    zero, end = (bytes.fromhex(c[1:]) for c in (_ZERO, _HIGH if value > 0 else _LOW))
    mixed = (round(z + (e - z) * abs(value)) for z, e in zip(zero, end, strict=True))
    return "#" + bytes(mixed).hex()


def _legend(low: float, high: float, largest: float) -> str:
    """A label below the picture: the colours of some values."""
    cells = "".join(
        f'<TD BGCOLOR="{_mix(value / largest)}" WIDTH="50">'
        f'<FONT COLOR="{"white" if abs(value) > largest / 2 else "black"}">{value:.3g}</FONT></TD>'
        for value in np.linspace(low, high, _LEGEND_STEPS).tolist()
    )
    return f'  label=<<TABLE BORDER="0" CELLSPACING="0"><TR>{cells}</TR></TABLE>>\n'


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
