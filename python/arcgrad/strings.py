"""The strings of graphs: one, all of them, and the distance between two."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ._arguments import checked
from ._core import (
    Graph,
    best_paths,
    chain_graph,
    compose,
    epsilon,
    negate,
    viterbi_score,
)

String = Sequence[int] | npt.NDArray[Any]


@overload
def string(graph: Graph, *, olabel: bool = False) -> list[int]: ...
@overload
def string(graph: list[Graph], *, olabel: bool = False) -> list[list[int]]: ...
@checked
def string(graph: Graph | list[Graph], *, olabel: bool = False) -> list[int] | list[list[int]]:
    """The only string of a graph that is one path, such as the result of ``viterbi_path``.

    Args:
        graph: A graph, or a list of graphs.
        olabel: Whether to read the output labels instead of the input labels.

    Returns:
        The labels along the path, without epsilons; for a list of graphs, a list of them.

    Raises:
        ValueError: If the graph is not one path.

    >>> import arcgrad as ag
    >>> ag.string(ag.chain_graph([3, ag.epsilon, 1]))
    [3, 1]
    """
    if isinstance(graph, list):
        return [string(element, olabel=olabel) for element in graph]
    arcs, nodes = graph.num_arcs(), graph.num_nodes()
    start, accept = graph.start(), graph.accept()
    src, dst = graph.src_nodes(), graph.dst_nodes()
    if len(start) == len(accept) == 1 and arcs == nodes - 1:
        # The arc that leaves each node; a path visits all nodes.
        arc_of = np.full(nodes, -1)
        arc_of[src] = np.arange(arcs)
        order: list[int] = []
        node = int(start[0])
        while (arc := int(arc_of[node])) >= 0 and len(order) < arcs:
            order.append(arc)
            node = int(dst[arc])
        if len(order) == arcs and node == accept[0] and arc_of[node] < 0:
            labels = (graph.olabels() if olabel else graph.ilabels())[order]
            return [int(label) for label in labels if label != epsilon]
    raise ValueError(
        f"string: the graph must be one path, but it has {nodes} nodes, {arcs} arcs, {len(start)} "
        f"start and {len(accept)} accept nodes; take its viterbi_path, or its paths"
    )


@checked
def paths(
    graph: Graph, limit: int | None = None, *, olabel: bool = False, unique: bool = False
) -> Iterator[tuple[list[int], float]]:
    """The accepted paths as pairs of labels and score, the best first, found on demand.

    The order is that of :func:`best_paths`. A graph with cycles has any number of paths: stop
    reading, or set ``limit``.

    Args:
        graph: A graph whose cycles have no positive weight.
        limit: The most paths; None for all.
        olabel: Whether to read the output labels instead of the input labels. Epsilons are left
            out.
        unique: Of the paths with the same output string, only the best.

    Raises:
        ValueError: As :func:`best_paths`; if ``limit`` is negative.

    Cost: that of :func:`best_paths` with n paths for the first n paths, up to a factor of 2.

    >>> import arcgrad as ag
    >>> loop = ag.closure(ag.chain_graph([7], weights=[-1.0]))
    >>> list(ag.paths(loop, 3))
    [([], 0.0), ([7], -1.0), ([7, 7], -2.0)]
    """
    if limit is not None and limit < 0:
        raise ValueError(f"paths: limit must be 0 or more, but it is {limit}")
    return _paths(graph.detach(), limit, olabel, unique)


def _paths(
    graph: Graph, limit: int | None, olabel: bool, unique: bool
) -> Iterator[tuple[list[int], float]]:
    given = 0
    for wanted in (16 << k for k in itertools.count()):
        count = wanted if limit is None else min(limit, wanted)
        if count == given:
            return
        found = best_paths(graph, count, unique=unique)
        for path in found[given:]:
            labels = path.olabels() if olabel else path.ilabels()
            score = viterbi_score(path).item()
            yield [label for label in labels.tolist() if label != epsilon], score
        given = len(found)
        if given < count:
            return


@checked
def edit_distance(
    first: Graph | String | list[Graph] | list[String],
    second: Graph | String | list[Graph] | list[String],
    costs: Graph | None = None,
) -> Graph | list[Graph]:
    """The least cost of edits that turn a string of one graph into a string of the other.

    Args:
        first: A sequence of labels, or a graph; or a list of them. The weights of a graph count:
            minus the score of a path is added to its cost.
        second: The same.
        costs: The transducer of edits, for example of :func:`levenshtein_graph`; by default
            insertions, deletions and substitutions cost 1 each.

    Returns:
        A scalar graph, in float64; ``inf`` if no string of one can become one of the other.

    Raises:
        ValueError: If the symbols of both graphs do not agree, or as :func:`viterbi_score`.

    Gradient: the edits on the best path, to ``costs`` and both graphs. Cost: that of composing the
    two graphs with the costs; for strings their product in time and memory.

    >>> import arcgrad as ag
    >>> ag.edit_distance([1, 2, 3], [2, 3, 3]).item()
    2.0
    >>> costs = ag.levenshtein_graph(4)
    >>> ag.backward(ag.edit_distance([1, 2, 3], [2, 3, 3], costs))
    >>> sum(costs.grad().weights_to_list())  # minus the number of matches and edits
    -4.0
    """
    if _is_list(first) and _is_list(second):
        if len(first) != len(second):
            raise ValueError(
                f"edit_distance: both lists must have the same length, but they have {len(first)} "
                f"and {len(second)}"
            )
        return [_edit_distance(*pair, costs) for pair in zip(first, second, strict=True)]
    return _edit_distance(first, second, costs)


def _edit_distance(first: Any, second: Any, costs: Graph | None) -> Graph:
    x, y = (one if isinstance(one, Graph) else chain_graph(one) for one in (first, second))
    if costs is None:
        marked, costs = _unit_costs(x, y)
        x = compose(x, marked)
    return negate(viterbi_score(compose(compose(x, costs), y)))


def _is_list(value: Any) -> bool:
    """Whether this is a list of strings or graphs, and not one of them."""
    if isinstance(value, Graph) or len(value) == 0:
        return False
    return isinstance(value[0], Graph) or np.ndim(value[0]) > 0


def _unit_costs(x: Graph, y: Graph) -> tuple[Graph, Graph]:
    """The transducer of edits as a composition of two, of a size linear in the number of labels.

    The first keeps a label or replaces it by a new one, at the cost of a substitution; the second
    replaces the new label by any label, and deletes and inserts. So the first has no epsilons, and
    no composition has to filter those of two graphs.
    """
    first, second = (np.setdiff1d(labels, [epsilon]) for labels in (x.olabels(), y.ilabels()))
    every = np.union1d(first, second)
    new = np.setdiff1d(np.arange(len(every) + 1), every)[0]

    def one_node(*parts: tuple[Any, Any, float]) -> Graph:
        rows = [np.broadcast_arrays(*part) for part in parts]
        ilabels, olabels, costs = (np.concatenate(column) for column in zip(*rows, strict=True))
        nodes = np.zeros(len(costs), np.int32)
        return Graph.from_arrays(
            nodes,
            nodes,
            ilabels,
            olabels,
            -costs,
            start=[0],
            accept=[0],
            num_nodes=1,
            dtype="float64",
            calc_grad=False,
            isymbols=x.osymbols,  # so that composing with y compares the symbols
        )

    marked = one_node((first, first, 0.0), (first, new, 1.0))
    edits = one_node(
        (second, second, 0.0),
        (new, second, 0.0),
        (first, epsilon, 1.0),
        (epsilon, second, 1.0),
    )
    return marked, edits
