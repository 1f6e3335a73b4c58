"""File functions with gtn's formats and exception types."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np

import arcgrad as ag
from arcgrad import drawing
from arcgrad._arguments import renamed
from arcgrad._core import GtnGraph as Graph
from arcgrad._core import to_dot
from arcgrad.gtn._functions import raises_as

FileName: TypeAlias = str | os.PathLike[str]
Symbols: TypeAlias = dict[int, str]


def save(file_name: FileName, graph: ag.Graph) -> None:
    """Save a graph in arcgrad's binary format, which has a checksum."""
    ag.save(file_name, graph)


def load(file_name: FileName) -> Graph:
    """Load a graph that arcgrad or gtn saved."""
    with raises_as(OSError, ValueError):
        try:
            return Graph(ag.load(file_name))
        except ValueError:
            try:
                graph = _from_gtn(Path(file_name).read_bytes())
            except ValueError as error:
                raise ValueError(
                    f"load: {str(file_name)!r} must hold a valid graph, but {error}"
                ) from None
            if graph is None:
                raise
            return graph


def _from_gtn(content: bytes) -> Graph | None:
    """The graph in gtn's binary format, or None if the bytes have another format.

    The format has no magic number, so the size is checked: four counts (nodes, arcs, starts,
    accepts), the starts, the accepts, four numbers per arc, then the weights.
    """
    numbers = np.frombuffer(content[: len(content) // 4 * 4], np.int32)
    if len(numbers) < 4 or min(numbers[:4]) < 0:
        return None
    num_nodes, num_arcs, num_start, num_accept = numbers[:4].tolist()
    if len(content) != 4 * (4 + num_start + num_accept + 5 * num_arcs):
        return None
    start, accept, arcs, weights = np.split(
        numbers[4:], np.cumsum([num_start, num_accept, 4 * num_arcs])
    )
    src, dst, ilabel, olabel = arcs.reshape(-1, 4).T
    graph = ag.Graph.from_arrays(
        src,
        dst,
        ilabel,
        olabel,
        weights.view(np.float32),
        start=start,
        accept=accept,
        num_nodes=num_nodes,
    )
    return Graph(graph)


def savetxt(file_name: FileName, graph: ag.Graph) -> None:
    """Save a graph as text; float32 weights read back exactly."""
    src, dst, ilabel, olabel, weight = graph.arcs()
    # arcgrad also writes float64 weights and trailing nodes without arcs, which gtn cannot read.
    plain = ag.Graph.from_arrays(
        src,
        dst,
        ilabel,
        olabel,
        weight.astype(np.float32),
        start=graph.start(),
        accept=graph.accept(),
    )
    ag.savetxt(file_name, plain)


def loadtxt(file_name: FileName) -> Graph:
    """Load a graph from text."""
    with raises_as(OSError, ValueError):
        return Graph(ag.loadtxt(file_name))


def write_dot(
    g: ag.Graph,
    file_name: FileName,
    isymbols: Symbols | None = None,
    osymbols: Symbols | None = None,
) -> None:
    """Write a graph as a Graphviz file; IndexError if a label has no symbol."""
    with raises_as(ValueError, IndexError), raises_as(OSError, RuntimeError):
        ag.write_dot(g, file_name, isymbols or None, osymbols or None)


def draw(
    graph: ag.Graph,
    file_name: FileName,
    isymbols: Symbols | None = None,
    osymbols: Symbols | None = None,
) -> None:
    """Draw a graph; the extension of the file is its format. IndexError if a label has no symbol.

    SVG, PNG and PDF files need ``pygraphviz`` or the program ``dot``, other formats need ``dot``.
    """
    isymbols, osymbols = isymbols or None, osymbols or None
    with raises_as(ValueError, IndexError), renamed("draw"):
        dot = to_dot(graph, isymbols, osymbols)
    kind = Path(file_name).suffix[1:]
    if kind in drawing.FORMATS and find_spec("pygraphviz") is not None:
        ag.draw(graph, file_name, isymbols, osymbols)
        return
    try:
        subprocess.run(
            ["dot", f"-T{kind}", "-o", os.fspath(file_name)],
            input=dot.encode(),
            check=True,
            capture_output=True,
        )
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno,
            "draw: the program dot of Graphviz is needed, but it was not found; install Graphviz, "
            "or run `pip install arcgrad[draw]`",
        ) from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip()
        raise RuntimeError(
            f"draw: dot must draw {os.fspath(file_name)!r}, but it failed: {reason}"
        ) from error
