"""Arc weights as parameters of modules."""

from __future__ import annotations

import hashlib

import numpy as np

import arcgrad as ag


def fingerprint(graph: ag.Graph) -> str:
    """Tells graphs apart whose nodes or arcs differ; weights do not matter.

    Parameters in the order of arcs mean nothing without their graph, so it is saved with them.
    """
    digest = hashlib.sha256(np.int64(graph.num_nodes()).tobytes())
    for array in (graph.start(), graph.accept(), *graph.arcs()[:4]):
        digest.update(np.ascontiguousarray(array, np.int32).tobytes())
    return digest.hexdigest()[:32]


def check_fingerprint(op: str, graph: ag.Graph, saved: object) -> None:
    """Raises if saved parameters belong to another graph than this one."""
    if saved != fingerprint(graph):
        raise RuntimeError(
            f"{op}: parameters are in the order of arcs, so the graph must be the one they were "
            f"saved with, but its fingerprint is {fingerprint(graph)} and theirs is {saved}"
        )
