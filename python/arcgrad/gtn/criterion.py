"""``gtn.criterion``."""

from collections.abc import Sequence

import arcgrad as ag
from arcgrad import criterion
from arcgrad.gtn._graph import Graph, share


def ctc_loss(log_probs: ag.Graph, target: Sequence[int], blank_idx: int) -> Graph:
    """The same as :func:`arcgrad.criterion.ctc_loss`."""
    return share(criterion.ctc_loss(log_probs, target, blank_idx))
