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
    """Load a graph that arcgrad, gtn or another program saved."""
    with raises_as(OSError, ValueError):
        return Graph(ag.load(file_name))


def savetxt(file_name: FileName, graph: ag.Graph) -> None:
    """Save a graph as text; float32 weights read back exactly."""
    if graph.has_node_weights():
        raise ValueError(
            "savetxt: the graph must have no node weights, which gtn does not have, but "
            f"it has {graph.num_weights() - graph.num_arcs()}; save keeps them"
        )
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
