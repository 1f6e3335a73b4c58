"""``gtn.Graph``: an arcgrad graph with the methods that only gtn has."""

from __future__ import annotations

import ctypes
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

import arcgrad as ag
from arcgrad._core import product_bound
from arcgrad.gtn._arguments import to_bool
from arcgrad.gtn._device import Device, fail_without_cuda

# The first page of memory holds no buffer, so a number below this is a weight, not an address.
FIRST_ADDRESS = 4096

# A product with emissions is lazy. Keeping its gradient, or printing it, materializes it. That
# happens only up to these bounds on its arcs.
MOST_ARCS_TO_KEEP = 4096
MOST_ARCS_TO_PRINT = 1_000_000


def is_lazy(graph: ag.Graph, most_arcs: int) -> bool:
    """Whether a graph is a lazy product that may have more arcs than this."""
    bound = product_bound(graph)
    return bound is not None and bound[1] > most_arcs


class Loans:
    """The float32 copies of weights whose addresses were returned, one for each number of arcs.

    All handles on a graph hold the same loans, and a graph holds the loans of its gradient. So an
    address is valid as long as any of them lives.
    """

    def __init__(self) -> None:
        self._copies: dict[int, NDArray[np.float32]] = {}
        self._of_grad: dict[str, Loans] = {}

    def lend(self, weights: NDArray[Any]) -> int:
        """The address of a copy; the next call with the same number of weights overwrites it."""
        # If two threads call at once, one of them makes the copy and both use it.
        copy = self._copies.setdefault(weights.size, np.empty(weights.size, np.float32))
        copy[:] = weights.reshape(-1)
        return copy.ctypes.data

    def of_grad(self) -> Loans:
        """The loans of the gradient."""
        return self._of_grad.setdefault("grad", Loans())

    def forget_grad(self) -> None:
        """Leave the loans of the gradient to its handles: the next gradient is another graph."""
        self._of_grad.clear()


class Graph(ag.Graph):
    """An arcgrad graph with gtn's methods.

    ``Graph(graph)`` is another handle on the same graph, so graphs pass between the two libraries
    without a copy.
    """

    # Whether remove() made the graph: then a single epsilon arc means the empty string.
    _is_removed = False

    def __init__(self, calc_grad: ag.Graph | bool = True, **options: Any) -> None:
        """An empty graph, or another handle on a graph."""
        argument: Any = calc_grad
        if not isinstance(calc_grad, ag.Graph):
            argument = to_bool("Graph", "calc_grad", calc_grad)
        super().__init__(argument, **options)
        if isinstance(calc_grad, Graph):
            self._is_removed = calc_grad._is_removed
            vars(self)["_loans"] = calc_grad._get_loans()

    def _get_loans(self) -> Loans:
        loans: Loans = vars(self).setdefault("_loans", Loans())
        return loans

    def add_node(self, start: bool = False, accept: bool = False) -> int:
        """Add a node and return its id."""
        start, accept = to_bool("add_node", "start", start), to_bool("add_node", "accept", accept)
        return super().add_node(start, accept)

    def add_arc(
        self,
        src_node: int,
        dst_node: int,
        ilabel: int | None = None,
        olabel: int | None = None,
        weight: float = 0.0,
        *,
        label: int | None = None,
    ) -> int:
        """Add an arc and return its id; a single label is both input and output."""
        first: Any = ilabel if label is None else label
        return super().add_arc(src_node, dst_node, first, olabel, weight)

    def weights(self) -> int:
        """The address of a float32 copy of the weights, which later calls update."""
        weights: Any = self.weights_view()
        return self._get_loans().lend(weights)

    def weights_to_numpy(self) -> NDArray[np.float32]:
        """A float32 copy of the weights, one per arc."""
        return np.asarray(super().weights_to_numpy(), np.float32)

    def set_weights(self, weights: Any) -> None:
        """Copy the weights from the address of float32 numbers, or from an array or list."""
        if isinstance(weights, (int, np.integer)):
            weights = self._read(int(weights))
        super().set_weights(weights)

    def _read(self, address: int) -> NDArray[np.float32]:
        size = self.num_arcs()
        if size == 0:
            return np.empty(0, np.float32)
        if address < FIRST_ADDRESS:
            raise ValueError(
                f"set_weights: a number must be the address of {size} float32 weights, "
                f"but it is {address}; pass the weights themselves as a list or an array"
            )
        return np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))

    def labels_to_list(self, ilabel: bool = True) -> list[int]:
        """The input labels, or the output labels, of the arcs.

        If ``remove(graph)`` left only the empty string, the list is empty, although an epsilon arc
        carries the weight of this string.
        """
        ilabel = to_bool("labels_to_list", "ilabel", ilabel)
        labels = super().labels_to_list(ilabel)
        is_empty_string = (
            self._is_removed
            and labels == [ag.epsilon]
            and super().labels_to_list(not ilabel) == [ag.epsilon]
        )
        return [] if is_empty_string else labels

    def arc_sort(self, olabel: bool = False) -> None:
        """Prepare the arcs for matching by label, which never changes a result."""
        super().arc_sort(to_bool("arc_sort", "olabel", olabel))

    def mark_arc_sorted(self, olabel: bool = False) -> None:
        """Do nothing: no mark is needed."""
        to_bool("mark_arc_sorted", "olabel", olabel)

    @property
    def calc_grad(self) -> bool:
        """Whether backward computes a gradient for this graph."""
        return super().calc_grad

    @calc_grad.setter
    def calc_grad(self, calc_grad: bool) -> None:
        calc_grad = to_bool("calc_grad", "the value", calc_grad)
        vars(ag.Graph)["calc_grad"].__set__(self, calc_grad)
        if not calc_grad:
            self._get_loans().forget_grad()

    def grad(self) -> Graph:
        """The gradient: a graph of the same structure."""
        gradient = Graph(super().grad())
        # The addresses must outlive this handle, which may be temporary.
        vars(gradient)["_loans"] = self._get_loans().of_grad()
        return gradient

    def zero_grad(self) -> None:
        """Drop the gradient."""
        super().zero_grad()
        self._get_loans().forget_grad()

    def cpu(self) -> Graph:
        """The graph itself: it is always on the CPU."""
        return self

    def cuda(self, device: Device | int | None = None) -> Graph:
        """Raise RuntimeError: there is no CUDA device."""
        fail_without_cuda("cuda")

    def is_cuda(self) -> bool:
        """False."""
        return False

    def __getstate__(self) -> Any:
        return (*super().__getstate__(), self._is_removed)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state[:2])
        self._is_removed = state[2:] == (True,)

    def __repr__(self) -> str:
        """The text format, shortened for large graphs; a large lazy product stays lazy."""
        if is_lazy(self, MOST_ARCS_TO_PRINT):
            return super().__repr__()
        size = max(self.num_nodes(), self.num_arcs())
        most = size if size <= 20 else 10

        def line(nodes: NDArray[np.int32]) -> str:
            return " ".join(map(str, nodes[:most])) + (" ..." if len(nodes) > most else "")

        lines = [line(self.start()), line(self.accept())]
        lines += [
            f"{src} {dst} {ilabel} {olabel} {weight:g}"
            for src, dst, ilabel, olabel, weight in zip(
                *(column[:most].tolist() for column in self.arcs()), strict=True
            )
        ]
        return "\n".join(lines) + ("\n...\n" if self.num_arcs() > most else "\n")


@overload
def share(result: ag.Graph) -> Graph: ...
@overload
def share(result: list[ag.Graph]) -> list[Graph]: ...
def share(result: Any) -> Any:
    """A result of arcgrad as gtn graphs, which retain their gradient.

    A large lazy product does not, unless ``retain_grad`` is called: that would materialize it.
    """
    if isinstance(result, list):
        return [share(graph) for graph in result]
    graph = Graph(result)
    if graph.calc_grad and not is_lazy(graph, MOST_ARCS_TO_KEEP):
        graph.retain_grad()
    return graph
