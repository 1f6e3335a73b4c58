"""``gtn.Graph``: an arcgrad graph with the methods that are gtn's alone."""

from __future__ import annotations

import ctypes
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

import arcgrad as ag
from arcgrad.gtn._device import Device, fail_without_cuda

# No buffer lies in the first page of memory. A number this small is a weight, not an address.
FIRST_ADDRESS = 4096


class Graph(ag.Graph):
    """An arcgrad graph with gtn's methods.

    ``Graph(graph)`` is another handle on the same graph, so graphs pass between the two libraries
    without a copy.
    """

    # What weights() gave out stays valid as long as the graph it came from.
    _lent: NDArray[np.float32] | None = None
    _hides_epsilon = False

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
        """Add an arc and return its id; with one label, both sides have it."""
        first: Any = ilabel if label is None else label
        return super().add_arc(src_node, dst_node, first, olabel, weight)

    def weights(self) -> int:
        """The address of the weights as float32, to read from until they change."""
        self._lent = np.asarray(self.weights_view(), np.float32, order="C")
        return self._lent.ctypes.data

    def weights_to_numpy(self) -> NDArray[np.float32]:
        """A float32 copy of the weights, one per arc."""
        return np.asarray(super().weights_to_numpy(), np.float32)

    def set_weights(self, weights: Any) -> None:
        """Copy the weights from an address, where float32 numbers lie, or from an array or list."""
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

        After ``remove(graph)`` no epsilon is listed, although one epsilon arc may be left to carry
        the weight of the empty string.
        """
        labels = super().labels_to_list(ilabel)
        if self._hides_epsilon:
            other = super().labels_to_list(not ilabel)
            labels = [x for x, y in zip(labels, other, strict=True) if x != ag.epsilon or x != y]
        return labels

    def grad(self) -> Graph:
        """The gradient: a graph of the same structure."""
        return Graph(super().grad())

    def cpu(self) -> Graph:
        """The graph itself, which is on the CPU already."""
        return self

    def cuda(self, device: Device | int | None = None) -> Graph:
        """Raise RuntimeError: there is no CUDA device."""
        fail_without_cuda("cuda")

    def is_cuda(self) -> bool:
        """False."""
        return False

    def __repr__(self) -> str:
        """The text format, shortened for large graphs."""
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
    """A result of arcgrad as gtn graphs, which keep their gradient as long as they are held."""
    if isinstance(result, list):
        return [share(graph) for graph in result]
    graph = Graph(result)
    if graph.calc_grad:
        graph.retain_grad()
    return graph
