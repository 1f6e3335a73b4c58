"""``gtn.criterion``."""

from collections.abc import Sequence

import arcgrad as ag
from arcgrad import criterion
from arcgrad._core import GtnGraph as Graph
from arcgrad._core import gtn_without_nan, to_gtn


def ctc_loss(log_probs: ag.Graph, target: Sequence[int], blank_idx: int) -> Graph:
    """The same as :func:`arcgrad.criterion.ctc_loss`."""
    return to_gtn(criterion.ctc_loss(gtn_without_nan(log_probs), target, blank_idx))
