"""Graphs to and from the objects of other libraries, which are imported only if they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arguments import checked
from ._core import Graph, from_bytes, from_k2_arcs, to_bytes, to_k2_arcs


@checked
def to_openfst(graph: Graph, *, label_offset: int = 1, arc_type: str = "") -> Any:
    """Convert a graph to an FST of OpenFst's Python package ``pywrapfst``.

    Scores become costs, labels become one higher, so that epsilon becomes 0, and the weights of
    accept nodes become final weights.
    Several start nodes, or one with a weight, are reached from a new last state by epsilon arcs.

    Args:
        graph: The graph.
        label_offset: Label k becomes k + label_offset. With 0 the label 0 is an error.
        arc_type: ``"standard"``, ``"log"`` or ``"log64"``; by default ``"standard"`` for float32
            and ``"log64"`` for float64.

    Returns:
        A ``pywrapfst.VectorFst``; ``pynini.Fst.from_pywrapfst`` converts it for pynini.

    Raises:
        ImportError: If ``pywrapfst`` is not installed; the package ``pynini`` has it.
        ValueError: If OpenFst cannot hold the graph.

    >>> import arcgrad as ag
    >>> ag.to_openfst(ag.chain_graph([1, 2], weights=[-0.5, 0.0])).num_states()
    3
    """
    try:
        import pywrapfst
    except ImportError:
        raise ImportError(
            "to_openfst: pywrapfst is needed, but it is not installed; run `pip install pynini`",
            name="pywrapfst",
        ) from None
    content = to_bytes(graph, "to_openfst", "openfst", label_offset, arc_type)
    return pywrapfst.VectorFst.read_from_string(content)


@checked
def from_openfst(fst: Any, *, label_offset: int = 1) -> Graph:
    """Convert an FST of ``pywrapfst`` or ``pynini`` to a graph.

    Costs become scores, labels become one lower, so that epsilon becomes -1, and final weights
    become weights of accept nodes. The graph has float32 for standard and
    log arcs, and float64 for log64 arcs.

    Args:
        fst: The FST, with any class that has ``write_to_string``.
        label_offset: Label k becomes k - label_offset.

    Raises:
        TypeError: If ``fst`` is no FST.
        ValueError: If the FST has another type of states or arcs, or label_offset is too large.

    >>> import arcgrad as ag, pynini
    >>> ag.from_openfst(pynini.accep("ab"), label_offset=0).ilabels()
    array([97, 98], dtype=int32)
    """
    write = getattr(fst, "write_to_string", None)
    if not callable(write):
        raise TypeError(
            "from_openfst: fst must be an FST of pywrapfst or pynini, but it is of type "
            f"{type(fst).__name__}"
        )
    return from_bytes(write(), "from_openfst", "openfst", label_offset)


@checked
def to_k2(graph: Graph, *, label_offset: int = 1) -> tuple[NDArray[np.int32], Any]:
    """Convert a graph to the arrays of which ``k2.Fsa`` is made.

    Labels become one higher, so that epsilon becomes 0, and an accept node gets an arc with label
    -1 to the final state, which is the last one. The start becomes state 0. Several start nodes, or
    one with a weight, are reached from a new start state by epsilon arcs.

    Args:
        graph: The graph, in float32 or with weights that float32 holds exactly.
        label_offset: Label k becomes k + label_offset. With 0 the label 0 is an error.

    Returns:
        ``(arcs, aux_labels)``. Rows of ``arcs`` are source, destination, label, and the bits of the
        score. ``aux_labels`` are the output labels, and None for an acceptor. In k2:
        ``k2.Fsa(torch.from_numpy(arcs), aux_labels=torch.from_numpy(aux_labels))``.

    >>> import arcgrad as ag
    >>> arcs, aux_labels = ag.to_k2(ag.chain_graph([1, 2]))
    >>> arcs[:, :3].tolist()
    [[0, 1, 2], [1, 2, 3], [2, 3, -1]]
    """
    arcs, aux_labels = map(np.asarray, to_k2_arcs(graph, label_offset))
    return arcs.reshape(-1, 4), aux_labels if len(aux_labels) else None


@checked
def from_k2(fsa: Any, aux_labels: Any = None, *, label_offset: int = 1) -> Graph:
    """Convert an FSA of k2, or the arrays of one, to a graph.

    Labels become one lower, so that epsilon becomes -1, and arcs to the final state become weights
    of accept nodes. Where a state has several of these arcs, or one with an output label, they stay
    as epsilon arcs to a node.

    Args:
        fsa: A ``k2.Fsa`` of one FSA, or rows of source, destination, label, and the bits of the
            score, as an array or a tensor.
        aux_labels: The output labels; by default those of the Fsa, if they are one per arc.
        label_offset: Label k becomes k - label_offset.

    Raises:
        TypeError: If ``fsa`` has no arcs.
        ValueError: If the arcs are not those of one FSA, or labels are not one per arc.

    >>> import numpy as np, arcgrad as ag
    >>> score = int(np.float32(-0.5).view(np.int32))
    >>> ag.from_k2(np.array([[0, 1, 7, score], [1, 2, -1, 0]]))
    Graph(2 nodes, 1 arc, start [0], accept [1], float32, calc_grad)
      0 -> 1  6/-0.5
    """
    arcs = getattr(fsa, "arcs", fsa)
    if callable(getattr(arcs, "values", None)):  # k2.RaggedArc
        if len(getattr(fsa, "shape", ())) > 2:
            raise ValueError(
                f"from_k2: fsa must be one FSA, but it is a vector of {fsa.shape[0]}; pass fsa[i]"
            )
        arcs = arcs.values()
    rows = _to_numpy(arcs)
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise ValueError(
            "from_k2: arcs must be rows of source, destination, label and the bits of the score, "
            f"but their shape is {rows.shape}"
        )
    if aux_labels is None:
        aux_labels = getattr(fsa, "aux_labels", None)
    if aux_labels is not None:
        aux_labels = _to_numpy(aux_labels)
        if len(aux_labels) != len(rows) or aux_labels.ndim != 1:
            raise ValueError(
                f"from_k2: aux_labels must be one label per arc, but for {len(rows)} arcs their "
                f"shape is {aux_labels.shape}; expand lists of labels to arcs first"
            )
    return from_k2_arcs(rows.ravel(), aux_labels, label_offset)


def _to_numpy(values: Any) -> NDArray[Any]:
    # Tensors may be on a device, or need a gradient.
    if callable(getattr(values, "detach", None)):
        values = values.detach().cpu().numpy()
    return np.asarray(values)
