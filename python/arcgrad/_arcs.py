"""The arcs of a graph one by one, as iteration over a graph gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ._core import Graph

# The number of arcs that are converted at a time.
_BLOCK = 4096


class Arc(NamedTuple):
    """An arc of a graph.

    >>> import arcgrad as ag
    >>> graph = ag.chain_graph([3, 5], weights=[0.5, 1.5])
    >>> [arc.weight for arc in graph if arc.ilabel == 5]
    [1.5]
    """

    src: int
    dst: int
    ilabel: int
    olabel: int
    weight: float


def arcs_of(graph: Graph) -> Iterator[Arc]:
    """The arcs of a graph in their order."""
    columns = graph.arcs()
    for begin in range(0, graph.num_arcs(), _BLOCK):
        yield from map(Arc, *(column[begin : begin + _BLOCK].tolist() for column in columns))
