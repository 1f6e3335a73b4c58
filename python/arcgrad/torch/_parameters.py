"""Arc weights as parameters of modules."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

import arcgrad as ag


def fingerprint(*graphs: ag.Graph) -> str:
    """Tells graphs apart whose nodes or arcs differ; weights do not matter.

    Parameters in the order of arcs mean nothing without their graphs, so it is saved with them.
    """
    digest = hashlib.sha256()
    for graph in graphs:
        digest.update(np.int64(graph.num_nodes()).tobytes())
        for array in (graph.start(), graph.accept(), *graph.arcs()[:4]):
            digest.update(np.ascontiguousarray(array, np.int32).tobytes())
    return digest.hexdigest()[:32]


def check_fingerprint(op: str, graphs: ag.Graph | Sequence[ag.Graph], saved: object) -> None:
    """Raises if saved parameters belong to other graphs than these."""
    own = fingerprint(graphs) if isinstance(graphs, ag.Graph) else fingerprint(*graphs)
    if saved != own:
        raise RuntimeError(
            f"{op}: parameters are in the order of arcs, so the graph must be the one they were "
            f"saved with, but its fingerprint is {own} and theirs is {saved}"
        )
