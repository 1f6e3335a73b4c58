"""The functions of gtn: wrappers of arcgrad's with gtn's arguments and exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np

import arcgrad as ag
from arcgrad.gtn._device import CPU, Device, calc_grad_of
from arcgrad.gtn._graph import Graph, share

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
    """The first value that is not None, which must be a graph or a list."""
    value = given(*values)
    if isinstance(value, ag.Graph) or hasattr(value, "__len__"):
        return value
    what = "it is missing" if value is None else f"it is {value!r}"
    raise TypeError(f"{op}: {which} must be a graph or a list of graphs, but {what}")


def unary(op: Callable[[Any], Any], *, is_score: bool = False) -> Unary:
    """An operation on one argument with gtn's argument names."""

    def call(g: Any = None, *, g1: Any = None, graphs: Any = None) -> Any:
        source = graphs_of(call.__name__, "the argument", g, g1, graphs)
        result = share(op(source))
        if not is_score:
            pass_mark(source, result)
        return result

    form: Unary = named(call, op)
    return form


def binary(op: Callable[[Any, Any], Any]) -> Binary:
    """An operation on two arguments with gtn's argument names."""

    def call(g1: Any = None, g2: Any = None, *, graphs1: Any = None, graphs2: Any = None) -> Any:
        first = graphs_of(call.__name__, "the first argument", g1, graphs1)
        second = graphs_of(call.__name__, "the second argument", g2, graphs2)
        if not (isinstance(first, ag.Graph) and isinstance(second, ag.Graph)):
            check_lengths(call.__name__, first, second)
        return share(op(first, second))

    form: Binary = named(call, op)
    return form


def pass_mark(source: Any, result: Any) -> None:
    """Copy the mark of a result of remove() to the graphs that are made from it."""
    if isinstance(source, ag.Graph):
        result._is_removed = getattr(source, "_is_removed", False)
    else:
        for one_source, one_result in zip(source, result, strict=True):
            pass_mark(one_source, one_result)


def named(call: Any, op: Callable[..., Any]) -> Any:
    """`call`, renamed to the operation of arcgrad."""
    call.__name__ = call.__qualname__ = op.__name__.lstrip("_")
    call.__doc__ = f"As :func:`arcgrad.{call.__name__}`, for a graph or a list of graphs."
    return call


def _intersect(first: Any, second: Any) -> Any:
    """Composition: gtn's intersect accepts transducers."""
    return ag.compose(first, second)


def of_scalars(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`op`, which treats two graphs with one arc as numbers, whatever their structure."""

    def call(first: Any, second: Any) -> Any:
        try:
            return op(first, second)
        except ValueError as error:
            if not (isinstance(first, ag.Graph) and isinstance(second, ag.Graph)):
                length = check_lengths(op.__name__, first, second)
                return list(map(call, broadcast(first, length), broadcast(second, length)))
            if first.num_arcs() != 1 or second.num_arcs() != 1:
                raise RuntimeError(str(error)) from error
            return op(first, moved(second, first))

    form: Callable[[Any, Any], Any] = named(call, op)
    return form


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


closure = unary(ag.closure)
clone = unary(ag.clone)
forward_score = unary(ag.forward_score, is_score=True)
negate = unary(ag.negate)
project_input = unary(ag.project_input)
project_output = unary(ag.project_output)
viterbi_path = unary(ag.viterbi_path)
viterbi_score = unary(ag.viterbi_score, is_score=True)

add = binary(of_scalars(ag.add))
compose = binary(ag.compose)
intersect = binary(_intersect)
subtract = binary(of_scalars(ag.subtract))


def concat(
    g1: Any = None, g2: Any = None, *, graphs: Any = None, graphs1: Any = None, graphs2: Any = None
) -> Any:
    """Concatenate two graphs, a list of graphs, or two lists of graphs element by element."""
    first, second = given(g1, graphs1, graphs), given(g2, graphs2)
    if second is None:
        return share(ag.concat(first))
    if isinstance(first, ag.Graph) and isinstance(second, ag.Graph):
        return share(ag.concat([first, second]))
    length = check_lengths("concat", first, second)
    pairs = list(zip(broadcast(first, length), broadcast(second, length), strict=True))
    return share(ag.concat(pairs)) if pairs else []


@overload
def union(graphs: Graphs) -> Graph: ...
@overload
def union(graphs: Sequence[Graphs]) -> list[Graph]: ...
def union(graphs: Any) -> Any:
    """The union of a list of graphs, or of each list in a list."""
    return share(ag.union(graphs))


def remove(
    g: Any = None,
    label: Any = ag.epsilon,
    olabel: Any = None,
    *,
    ilabel: Any = None,
    graphs: Any = None,
    labels: Any = None,
) -> Any:
    """Remove the arcs with a label, or a pair of labels; for a list, one label per graph."""
    batch = graphs_of("remove", "the first argument", g, graphs)
    removed = given(ilabel, labels, label)
    if isinstance(batch, ag.Graph):
        return _removed(batch, removed, olabel)
    if np.ndim(removed) == 0:
        removed = [removed] * len(batch)
    length = check_lengths("remove", batch, removed)
    pairs = zip(broadcast(batch, length), broadcast(removed, length), strict=True)
    return ag.parallel_for(lambda pair: _removed(pair[0], pair[1], olabel), pairs)


def _removed(graph: ag.Graph, ilabel: int, olabel: int | None) -> Graph:
    result = share(ag.remove(graph, ilabel, olabel))
    result._is_removed = ilabel == ag.epsilon and olabel in (None, ag.epsilon)
    return result


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
            with raises_as(RuntimeError, ValueError):
                ag.backward(
                    list(compress(roots, chosen)),
                    None if seeds is None else list(compress(broadcast(seeds, length), chosen)),
                    retain_graph=keep,
                )


def _are_graphs(values: Any) -> bool:
    if isinstance(values, ag.Graph):
        return True
    return np.ndim(values) > 0 and len(values) > 0 and isinstance(values[0], ag.Graph)


def linear_graph(M: int, N: int, device: Device | bool = ON_CPU, calc_grad: bool = True) -> Graph:
    """A chain of M + 1 nodes with N arcs per step; ``calc_grad`` may be the third argument."""
    return Graph(ag.linear_graph(M, N, calc_grad=calc_grad_of("linear_graph", device, calc_grad)))


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
        path = ag.sample(graph, ANY_LENGTH)
    except ValueError:
        if graph.is_acyclic():
            raise
        path = _sample_damped(graph)
    return share(path) if path.num_arcs() <= max_length else Graph()


def _sample_damped(graph: ag.Graph) -> ag.Graph:
    # With this penalty, the arcs that leave a node have a total probability of at most 1/2.
    leaving = np.full(graph.num_nodes(), -np.inf)
    np.logaddexp.at(leaving, graph.src_nodes(), graph.weights_to_list())
    less = leaving.max() + np.log(2.0)
    path = ag.sample(ag.add(graph, like(graph, np.full(graph.num_arcs(), -less))), ANY_LENGTH)
    return ag.add(path, like(path, np.full(path.num_arcs(), less)))


def parallel_for(function: Callable[[int], Any], ints: Iterable[int], /) -> None:
    """Call a function on each number, on the thread pool."""
    ag.parallel_for(function, ints)
