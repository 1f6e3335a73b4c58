"""Arc weights as parameters of modules."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

import arcgrad as ag


class ChecksState(nn.Module):
    """A module whose extra state says which graph its parameters belong to."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any
    ) -> None:
        # Torch sets the extra state last, but if that is refused nothing may have changed.
        key = f"{prefix}_extra_state"
        if key in state_dict and type(self).set_extra_state is not nn.Module.set_extra_state:
            self.set_extra_state(state_dict[key])
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)


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
