"""The functions of gtn: argument forms and exceptions of gtn around the ops of the core.

A call with graphs as positional arguments, as most programs make them, goes to the core directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np

import arcgrad as ag
from arcgrad import _core
from arcgrad._core import GtnGraph as Graph
from arcgrad._core import to_gtn
from arcgrad.gtn._device import CPU, Device, calc_grad_of

Graphs: TypeAlias = Sequence[ag.Graph]
T = TypeVar("T")

ANY_LENGTH = 2**31
ON_CPU = Device(CPU)


class Unary(Protocol):
    """An operation on a graph, or on every graph of a list."""

    @overload
    def __call__(self, g: ag.Graph) -> Graph: ...
    @overload
    def __call__(self, graphs: Graphs) -> list[Graph]: ...


class Binary(Protocol):
    """An operation on two graphs, or on two lists of graphs element by element."""

    @overload
    def __call__(self, g1: ag.Graph, g2: ag.Graph) -> Graph: ...
    @overload
    def __call__(self, graphs1: Graphs, graphs2: Graphs) -> list[Graph]: ...


@contextmanager
def raises_as(expected: type[Exception], wanted: type[Exception]) -> Iterator[None]:
    """Convert an exception of arcgrad to the type that gtn raises."""
    try:
        yield
    except expected as error:
        raise wanted(str(error)) from error


def check_lengths(op: str, *batches: Any) -> int:
    """The length of the longest list; every other list must have the same length, or length 1."""
    lengths = [1 if isinstance(batch, ag.Graph) else len(batch) for batch in batches]
    longest = max(lengths)
    if any(length not in (1, longest) for length in lengths):
        raise RuntimeError(
            f"{op}: lists must have the same length, or length 1, but the lengths are "
            + " and ".join(map(str, lengths))
        )
    return longest


def broadcast(batch: ag.Graph | Sequence[T], length: int) -> Sequence[Any]:
    """A list with `length` elements."""
    elements: Sequence[Any] = [batch] if isinstance(batch, ag.Graph) else batch
    return elements if len(elements) == length else list(elements) * length


def given(*values: Any) -> Any:
    """The first value that is not None: in gtn one argument has several names."""
    for value in values:
        if value is not None:
            return value
    return None


def graphs_of(op: str, which: str, *values: Any) -> Any:
    """The first value that is not None, which must be a graph or a list of graphs."""
    value = given(*values)
    if isinstance(value, ag.Graph):
        return value
    if not hasattr(value, "__len__"):
        what = "it is missing" if value is None else f"it is {value!r}"
        raise TypeError(f"{op}: {which} must be a graph or a list of graphs, but {what}")
    for i, element in enumerate(value):
        if not isinstance(element, ag.Graph):
            raise TypeError(
                f"{op}: {which} must be a graph or a list of graphs, but element {i} is {element!r}"
            )
    return value


def unary(name: str) -> Unary:
    """An operation on one argument with gtn's argument names."""
    op = getattr(_core, f"gtn_{name}")

    def call(g: Any = None, *, g1: Any = None, graphs: Any = None) -> Any:
        if type(g) is Graph:
            return op(g)
        return op(graphs_of(name, "the argument", g, g1, graphs))

    form: Unary = named(call, name)
    return form


def binary(name: str, op: Callable[[Any, Any], Any] | None = None) -> Binary:
    """An operation on two arguments with gtn's argument names."""
    run = op or getattr(_core, f"gtn_{name}")

    def call(g1: Any = None, g2: Any = None, *, graphs1: Any = None, graphs2: Any = None) -> Any:
        if type(g1) is Graph and type(g2) is Graph:
            return run(g1, g2)
        first = graphs_of(name, "the first argument", g1, graphs1)
        second = graphs_of(name, "the second argument", g2, graphs2)
        if isinstance(first, ag.Graph) and isinstance(second, ag.Graph):
            return run(first, second)
        length = check_lengths(name, first, second)
        return run(broadcast(first, length), broadcast(second, length))

    form: Binary = named(call, name)
    return form


def named(call: Any, name: str) -> Any:
    """`call`, with the name of an operation of arcgrad."""
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"As :func:`arcgrad.{name}` by the rules of gtn, for a graph or a list."
    return call


def of_scalars(name: str) -> Binary:
    """An operation that treats two graphs with one arc as numbers, whatever their structure."""
    op = getattr(ag, name)

    def call(first: Any, second: Any) -> Any:
        if not isinstance(first, ag.Graph):
            return list(map(call, first, second))
        try:
            return to_gtn(op(first, second))
        except ValueError as error:
            if first.num_arcs() != 1 or second.num_arcs() != 1:
                raise RuntimeError(str(error)) from error
            return to_gtn(op(first, moved(second, first)))

    return binary(name, call)


def moved(graph: ag.Graph, other: ag.Graph) -> ag.Graph:
    """The weights of `graph` on the arcs of `other`, which has the same number of arcs."""
    has_grad = graph.calc_grad and ag.is_grad_enabled()
    result = like(other, graph.weights_view(), calc_grad=has_grad)
    # The gradient of a clone is its seed, which may have another structure: a copy on the tape.
    return ag.grad(ag.clone(result), result, graph, create_graph=True) if has_grad else result


def like(graph: ag.Graph, weights: Any, *, calc_grad: bool = False) -> ag.Graph:
    """A leaf with the structure of `graph` and other weights."""
    src, dst, ilabel, olabel, _ = graph.arcs()
    return ag.Graph.from_arrays(
        src,
        dst,
        ilabel,
        olabel,
        np.reshape(weights, -1),
        start=graph.start(),
        accept=graph.accept(),
        num_nodes=graph.num_nodes(),
        calc_grad=calc_grad,
    )


clone = unary("clone")
closure = unary("closure")
forward_score = unary("forward_score")
negate = unary("negate")
project_input = unary("project_input")
project_output = unary("project_output")
viterbi_path = unary("viterbi_path")
viterbi_score = unary("viterbi_score")

add = of_scalars("add")
compose = binary("compose")
intersect = binary("intersect")
subtract = of_scalars("subtract")


def concat(
    g1: Any = None, g2: Any = None, *, graphs: Any = None, graphs1: Any = None, graphs2: Any = None
) -> Any:
    """Concatenate two graphs, a list of graphs, or two lists of graphs element by element."""
    first, second = given(g1, graphs1, graphs), given(g2, graphs2)
    if second is None:
        return to_gtn(ag.concat(first))
    if isinstance(first, ag.Graph) and isinstance(second, ag.Graph):
        return to_gtn(ag.concat([first, second]))
    length = check_lengths("concat", first, second)
    pairs = list(zip(broadcast(first, length), broadcast(second, length), strict=True))
    return to_gtn(ag.concat(pairs)) if pairs else []


@overload
def union(graphs: Graphs) -> Graph: ...
@overload
def union(graphs: Sequence[Graphs]) -> list[Graph]: ...
def union(graphs: Any) -> Any:
    """The union of a list of graphs, or of each list in a list."""
    return to_gtn(ag.union(graphs))


def remove(
    g: Any = None,
    label: Any = ag.epsilon,
    olabel: Any = None,
    *,
    ilabel: Any = None,
    graphs: Any = None,
    labels: Any = None,
) -> Any:
    """Remove the arcs with a label, or a pair of labels; for a list, one label per graph.

    The result accepts the same strings without these arcs. All its weights are 0, and it has no
    gradient; :func:`arcgrad.remove` keeps both.
    """
    batch = graphs_of("remove", "the first argument", g, graphs)
    removed = given(ilabel, labels, label)
    if isinstance(batch, ag.Graph):
        return _core.gtn_remove(batch, removed, removed if olabel is None else olabel)
    if np.ndim(removed) == 0:
        removed = [removed] * len(batch)
    length = check_lengths("remove", batch, removed)
    pairs = zip(broadcast(batch, length), broadcast(removed, length), strict=True)
    return ag.parallel_for(
        lambda pair: _core.gtn_remove(pair[0], pair[1], pair[1] if olabel is None else olabel),
        pairs,
    )


def backward(
    g: Any = None,
    grad: Any = None,
    retain_graph: Any = False,
    *,
    graphs: Any = None,
    grads: Any = None,
    retain_graphs: Any = None,
) -> None:
    """Differentiate graphs; graphs that require no gradient are skipped.

    The second argument may be the seed gradients, or, as in the short form, ``retain_graph``.

    Raises:
        ValueError: If the tape was freed.
    """
    if type(g) is Graph and (grad is None or isinstance(grad, bool)) and retain_graphs is None:
        return _core.gtn_backward(g, bool(retain_graph) if grad is None else grad)
    roots = graphs_of("backward", "the first argument", g, graphs)
    seeds, retain = given(grad, grads), given(retain_graphs, retain_graph)
    if seeds is not None and not _are_graphs(seeds):
        seeds, retain = None, seeds
    roots = [roots] if isinstance(roots, ag.Graph) else roots
    if np.ndim(retain) == 0:
        retain = [retain] * len(roots)
    length = check_lengths("backward", *(x for x in (roots, seeds, retain) if x is not None))
    roots, retain = broadcast(roots, length), broadcast(retain, length)
    # Retained tapes come first: a freed tape may share a part with them.
    for keep in (True, False):
        chosen = [roots[i].calc_grad and bool(retain[i]) == keep for i in range(length)]
        if any(chosen):
            _core.gtn_backward(
                list(compress(roots, chosen)),
                [] if seeds is None else list(compress(broadcast(seeds, length), chosen)),
                keep,
            )


def _are_graphs(values: Any) -> bool:
    if isinstance(values, ag.Graph):
        return True
    return np.ndim(values) > 0 and len(values) > 0 and isinstance(values[0], ag.Graph)


def linear_graph(M: int, N: int, device: Device | bool = ON_CPU, calc_grad: bool = True) -> Graph:
    """A chain of M + 1 nodes with N arcs per step; ``calc_grad`` may be the third argument."""
    return _core.gtn_linear_graph(M, N, calc_grad_of("linear_graph", device, calc_grad))


def scalar_graph(weight: float, device: Device | bool = ON_CPU, calc_grad: bool = True) -> Graph:
    """A graph with one epsilon arc; ``calc_grad`` may be the second argument."""
    calc_grad = calc_grad_of("scalar_graph", device, calc_grad)
    return Graph(ag.scalar_graph(weight, calc_grad, dtype="float32"))


def equal(g1: ag.Graph, g2: ag.Graph) -> bool:
    """Whether two graphs have the same nodes, and the same arcs and weights in the same order."""
    return ag.equal(g1, g2) and all(
        np.array_equal(first, second, equal_nan=True)
        for first, second in zip(g1.arcs(), g2.arcs(), strict=True)
    )


def isomorphic(g1: ag.Graph, g2: ag.Graph) -> bool:
    """Whether two graphs are equal up to the order of their nodes."""
    return ag.isomorphic(g1, g2)


def rand_equivalent(
    g1: ag.Graph, g2: ag.Graph, num_samples: int = 1000, tol: float = 1e-4, max_length: int = 1000
) -> bool:
    """Whether two graphs give the same scores to strings sampled from them."""
    return ag.rand_equivalent(g1, g2, num_samples, tol, max_length)


def sample(g: ag.Graph, max_length: int = 1000) -> Graph:
    """A path sampled by its score; the empty graph if there is no path or it has too many arcs.

    If the sum over all paths diverges, the path is sampled with a penalty on every arc that makes
    it converge.
    """
    graph = ag.connect(g)
    if graph.num_nodes() == 0:
        return Graph()
    try:
        path = ag.sample(graph, max_length=ANY_LENGTH)
    except ValueError:
        if graph.is_acyclic():
            raise
        path = _sample_damped(graph)
    return to_gtn(path) if path.num_arcs() <= max_length else Graph()


def _sample_damped(graph: ag.Graph) -> ag.Graph:
    # With this penalty, the arcs that leave a node have a total probability of at most 1/2.
    leaving = np.full(graph.num_nodes(), -np.inf)
    np.logaddexp.at(leaving, graph.src_nodes(), graph.weights_to_list())
    less = leaving.max() + np.log(2.0)
    lowered = ag.add(graph, like(graph, np.full(graph.num_arcs(), -less)))
    path = ag.sample(lowered, max_length=ANY_LENGTH)
    return ag.add(path, like(path, np.full(path.num_arcs(), less)))


def parallel_for(function: Callable[[int], Any], ints: Iterable[int], /) -> None:
    """Call a function on each number, on the thread pool."""
    ag.parallel_for(function, ints)
