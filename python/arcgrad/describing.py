"""What a graph is like, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ._arguments import checked
from ._core import Graph, connect, epsilon, is_deterministic


@dataclass(frozen=True)
class GraphInfo:
    """What :func:`info` finds; ``print`` shows one line per number.

    >>> import arcgrad as ag
    >>> ag.info(ag.chain_graph([1, 2])).is_deterministic
    True

    Attributes:
        num_nodes: The number of nodes.
        num_arcs: The number of arcs.
        num_start: The number of start nodes.
        num_accept: The number of accept nodes.
        num_ilabels: The number of different input labels, without epsilon.
        num_olabels: The number of different output labels, without epsilon.
        num_iepsilons: The number of arcs whose input label is epsilon.
        num_oepsilons: The number of arcs whose output label is epsilon.
        num_impossible: The number of arcs of weight ``-inf``.
        num_connected: The number of nodes on accepted paths.
        max_out_arcs: The most arcs that leave a node.
        min_weight: The least finite weight of an arc; NaN without any.
        max_weight: The largest finite weight of an arc; NaN without any.
        has_node_weights: Whether start and accept nodes have weights.
        is_acceptor: Whether the labels of each arc are equal.
        is_acyclic: Whether there is no cycle.
        is_deterministic: As :func:`is_deterministic`.
        dtype: The type of the weights.
        calc_grad: Whether the graph takes part in differentiation.
        num_bytes: The memory of arcs, ends and weights, without data derived from them. Graphs
            made from one another share memory.
    """

    num_nodes: int
    num_arcs: int
    num_start: int
    num_accept: int
    num_ilabels: int
    num_olabels: int
    num_iepsilons: int
    num_oepsilons: int
    num_impossible: int
    num_connected: int
    max_out_arcs: int
    min_weight: float
    max_weight: float
    has_node_weights: bool
    is_acceptor: bool
    is_acyclic: bool
    is_deterministic: bool
    dtype: str
    calc_grad: bool
    num_bytes: int

    def __str__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        width = max(map(len, values))
        return "\n".join(
            f"{name:{width}}  {value:,}" if type(value) is int else f"{name:{width}}  {value}"
            for name, value in values.items()
        )


@checked
def info(graph: Graph) -> GraphInfo:
    """The size and the properties of a graph, to look at or to print.

    A product with emissions is materialized. Time: linear in nodes and arcs, and sorting labels.

    Args:
        graph: The graph.

    >>> import arcgrad as ag
    >>> found = ag.info(ag.closure(ag.chain_graph([1, 2])))
    >>> found.num_arcs, found.num_iepsilons, found.is_acyclic
    (4, 2, False)
    >>> print(found)  # doctest: +ELLIPSIS
    num_nodes         4
    num_arcs          4
    ...
    """
    ilabels, olabels = graph.ilabels(), graph.olabels()
    weights = graph.weights_to_numpy()
    finite = weights[np.isfinite(weights)]
    is_acceptor = bool(np.array_equal(ilabels, olabels))
    columns = 3 if is_acceptor else 4
    ends = len(graph.start()) + len(graph.accept())
    return GraphInfo(
        num_nodes=graph.num_nodes(),
        num_arcs=graph.num_arcs(),
        num_start=len(graph.start()),
        num_accept=len(graph.accept()),
        num_ilabels=len(np.setdiff1d(ilabels, [epsilon])),
        num_olabels=len(np.setdiff1d(olabels, [epsilon])),
        num_iepsilons=int(np.count_nonzero(ilabels == epsilon)),
        num_oepsilons=int(np.count_nonzero(olabels == epsilon)),
        num_impossible=int(np.count_nonzero(weights == -np.inf)),
        num_connected=connect(graph.detach()).num_nodes(),
        max_out_arcs=int(np.bincount(graph.src_nodes()).max(initial=0)),
        min_weight=float(finite.min()) if len(finite) else float("nan"),
        max_weight=float(finite.max()) if len(finite) else float("nan"),
        has_node_weights=graph.has_node_weights(),
        is_acceptor=is_acceptor,
        is_acyclic=graph.is_acyclic(),
        is_deterministic=is_deterministic(graph),
        dtype=str(graph.dtype),
        calc_grad=graph.calc_grad,
        num_bytes=4 * (columns * graph.num_arcs() + ends)
        + weights.nbytes
        + weights.itemsize * ends * graph.has_node_weights(),
    )
