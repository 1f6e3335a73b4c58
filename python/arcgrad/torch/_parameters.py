"""Arc weights as parameters of modules."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

import arcgrad as ag


class ChecksState(nn.Module):
    """A module whose extra state is the fingerprint of the graph of its parameters."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any
    ) -> None:
        # Torch sets the extra state last. It is checked first, before any parameter changes.
        key = f"{prefix}_extra_state"
        if key in state_dict and type(self).set_extra_state is not nn.Module.set_extra_state:
            self.set_extra_state(state_dict[key])
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)


def fingerprint(*graphs: ag.Graph) -> str:
    """A hash of the nodes and arcs of graphs, but not of their weights.

    Parameters are in the order of arcs, so they are saved with the fingerprint of their graphs.
    """
    digest = hashlib.sha256()
    for graph in graphs:
        digest.update(np.int64(graph.num_nodes()).tobytes())
        for array in (graph.start(), graph.accept(), *graph.arcs()[:4]):
            digest.update(np.ascontiguousarray(array, np.int32).tobytes())
    return digest.hexdigest()[:32]


def check_fingerprint(op: str, graphs: ag.Graph | Sequence[ag.Graph], saved: object) -> None:
    """Raise RuntimeError if saved parameters belong to other graphs."""
    own = fingerprint(graphs) if isinstance(graphs, ag.Graph) else fingerprint(*graphs)
    if saved != own:
        raise RuntimeError(
            f"{op}: parameters are in the order of arcs, so the graph must be the one they were "
            f"saved with, but its fingerprint is {own} and the saved one is {saved}"
        )
