"""Graphs of known kinds that are built from arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arguments import checked
from ._core import Graph, epsilon

Labels = int | Sequence[int] | npt.NDArray[Any]
Costs = float | Sequence[Any] | npt.NDArray[Any]


@checked
def random_graph(
    num_nodes: int,
    num_arcs: int,
    num_labels: int,
    *,
    acyclic: bool = True,
    transducer: bool = False,
    epsilon_rate: float = 0.0,
    low: float = -1.0,
    high: float = 0.0,
    dtype: Any = "float32",
    calc_grad: bool = True,
    seed: int | None = None,
) -> Graph:
    """A random graph in which every node lies on an accepted path.

    It begins at the first node and ends at the last. An arc leads from each node to the next, and
    the ends of the other arcs are drawn uniformly. Arcs are ordered by source.

    Args:
        num_nodes: The number of nodes, at least 1.
        num_arcs: The number of arcs, at least ``num_nodes - 1``.
        num_labels: Labels are drawn from 0, ..., ``num_labels - 1``.
        acyclic: Whether arcs lead only to later nodes.
        transducer: Whether output labels are drawn too, or equal the input labels.
        epsilon_rate: The probability that a label is epsilon.
        low: The least weight.
        high: The largest weight; weights are drawn uniformly.
        dtype: The type of the weights.
        calc_grad: Whether the graph takes part in differentiation.
        seed: Makes the graph repeatable.

    Raises:
        ValueError: If no such graph exists.

    >>> import arcgrad as ag
    >>> g = ag.random_graph(100, 500, 10, seed=1)
    >>> g.num_nodes(), g.num_arcs(), g.is_acyclic()
    (100, 500, True)
    """
    op = "random_graph"
    num_nodes, num_arcs = operator.index(num_nodes), operator.index(num_arcs)
    if not 1 <= num_nodes < 2**31:
        raise ValueError(f"{op}: num_nodes must be from 1 to 2^31 - 1, but it is {num_nodes}")
    if not num_nodes - 1 <= num_arcs < 2**31:
        raise ValueError(
            f"{op}: num_arcs must be from num_nodes - 1 to 2^31 - 1, but they are {num_arcs} arcs "
            f"and {num_nodes} nodes"
        )
    if num_nodes == 1 and num_arcs and acyclic:
        raise ValueError(
            f"{op}: one node without cycles must have no arcs, but there are {num_arcs}"
        )
    if not 1 <= num_labels < 2**31:
        raise ValueError(f"{op}: num_labels must be from 1 to 2^31 - 1, but it is {num_labels}")
    if not 0.0 <= epsilon_rate <= 1.0:
        raise ValueError(f"{op}: epsilon_rate must be from 0 to 1, but it is {epsilon_rate}")
    if not -np.inf < low <= high < np.inf:
        raise ValueError(f"{op}: low must be at most high, both finite, but they are {low}, {high}")
    if seed is not None and seed < 0:
        raise ValueError(f"{op}: the seed must be 0 or more, but it is {seed}")
    random = np.random.default_rng(seed)
    row = np.arange(num_nodes - 1, dtype=np.int32)
    more = num_arcs - len(row)
    src = random.integers(num_nodes, size=more, dtype=np.int32)
    dst = random.integers(num_nodes - acyclic, size=more, dtype=np.int32) if more else src
    if acyclic:
        dst += dst >= src  # another node, uniformly
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    src, dst = np.concatenate([row, src]), np.concatenate([row + 1, dst])
    order = np.argsort(src, kind="stable")

    def draw_labels() -> npt.NDArray[np.int32]:
        labels = random.integers(num_labels, size=num_arcs, dtype=np.int32)
        labels[random.random(num_arcs) < epsilon_rate] = epsilon
        return labels

    ilabels = draw_labels()
    return Graph.from_arrays(
        src[order],
        dst[order],
        ilabels,
        draw_labels() if transducer else None,
        random.uniform(low, high, num_arcs),
        start=[0],
        accept=[num_nodes - 1],
        num_nodes=num_nodes,
        dtype=dtype,
        calc_grad=calc_grad,
    )


@checked
def levenshtein_graph(
    labels: Labels,
    *,
    insertion: Costs = 1.0,
    deletion: Costs = 1.0,
    substitution: Costs = 1.0,
    dtype: Any = "float64",
    calc_grad: bool = True,
) -> Graph:
    """The transducer of edits: it maps each string to all strings, at the cost of the edits.

    It has one node. Weights are minus costs, so that the best path between two strings has minus
    their edit distance. With n labels, the arcs are, in this order: n matches ``a:a`` of weight 0;
    n (n - 1) substitutions ``a:b``, by ``a``, then by ``b``; n deletions ``a:epsilon``; n
    insertions ``epsilon:b``. The weights can be learned like those of any graph.

    Args:
        labels: The number of labels, for the labels 0, 1, ..., or the labels.
        insertion: The cost of an insertion, or one cost per label.
        deletion: The cost of a deletion, or one cost per label.
        substitution: The cost of a substitution, or a matrix with a row for each label that is
            replaced; its diagonal is not read.
        dtype: The type of the weights.
        calc_grad: Whether the graph takes part in differentiation.

    Raises:
        ValueError: If labels are negative or occur twice, or costs have the wrong shape or are NaN.

    >>> import arcgrad as ag
    >>> ag.levenshtein_graph(2, insertion=3).weights_to_list()
    [0.0, 0.0, -1.0, -1.0, -1.0, -1.0, -3.0, -3.0]
    """
    op = "levenshtein_graph"
    if isinstance(labels, (int, np.integer)):
        if not 0 <= labels < 2**15:
            raise ValueError(f"{op}: the number of labels must be below 2^15, but it is {labels}")
        names = np.arange(int(labels))
    else:
        names = np.asarray(labels)
        if names.ndim != 1 or (names.size and names.dtype.kind not in "iu"):
            raise TypeError(
                f"{op}: labels must be a list of whole numbers, but they are {labels!r}"
            )
        if len(names) >= 2**15:
            raise ValueError(
                f"{op}: there must be fewer than 2^15 labels, but there are {len(names)}"
            )
    if len(np.unique(names)) < len(names) or np.any(names < 0):
        raise ValueError(f"{op}: labels must be different and 0 or more, but they are {labels!r}")
    count = len(names)

    def costs(what: str, given: Costs, *shape: int) -> npt.NDArray[np.float64]:
        array = np.asarray(given, np.float64)
        if array.shape not in ((), shape):
            raise ValueError(
                f"{op}: the costs of {what} must be one number or have the shape {shape}, but "
                f"their shape is {array.shape}"
            )
        if np.isnan(array).any():
            raise ValueError(f"{op}: costs must be numbers, but one of {what} is NaN")
        return np.broadcast_to(array, shape)

    first, second = np.nonzero(~np.eye(count, dtype=bool))
    silent = np.full(count, epsilon)
    weights = [
        np.zeros(count),
        -costs("substitution", substitution, count, count)[first, second],
        -costs("deletion", deletion, count),
        -costs("insertion", insertion, count),
    ]
    ilabels = np.concatenate([names, names[first], names, silent])
    nodes = np.zeros(len(ilabels), np.int32)
    return Graph.from_arrays(
        nodes,
        nodes,
        ilabels,
        np.concatenate([names, names[second], silent, names]),
        np.concatenate(weights) + 0.0,  # no -0
        start=[0],
        accept=[0],
        num_nodes=1,
        dtype=dtype,
        calc_grad=calc_grad,
    )
