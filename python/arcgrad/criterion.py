"""Sequence losses as functions of graphs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from ._arguments import checked
from ._core import Graph, ctc_graph, forward_score, intersect, negate


@overload
def ctc_loss(log_probs: Graph, target: Sequence[int], blank_idx: int) -> Graph: ...
@overload
def ctc_loss(
    log_probs: Sequence[Graph], target: Sequence[Sequence[int]], blank_idx: int
) -> list[Graph]: ...
@checked
def ctc_loss(log_probs: Any, target: Any, blank_idx: int) -> Any:
    r"""The connectionist temporal classification loss of a target.

    .. math:: -\log \sum_{a \in A(y)} e^{s(a)}

    where :math:`A(y)` are the alignments of the target: every label lasts one frame or more, blanks
    may stand anywhere, and equal labels in a row have a blank between them.

    Args:
        log_probs: The emissions, usually ``linear_graph(T, C, log_probabilities)``. A list is a
            batch, with a list of targets.
        target: The labels of the target; it may be empty.
        blank_idx: The label of the blank.

    Returns:
        A scalar graph, or a list of them. It is ``inf``, with zero gradient, if no alignment fits
        the emissions.

    Raises:
        ValueError: If a label is the blank or is not a label of the emissions, or if there is not
            one target per element of a list.

    Gradient: minus the posterior probability of each arc of ``log_probs``. The loss does not
    normalize the weights. Time and memory: O(frames x target length).

    >>> import arcgrad as ag, numpy as np
    >>> log_probs = ag.linear_graph(2, 3, np.log(np.full((2, 3), 1 / 3)))
    >>> round(ag.criterion.ctc_loss(log_probs, [1], 0).item(), 4)  # 3 of 9: 01, 10, 11
    1.0986
    """
    blank = operator.index(blank_idx)
    if isinstance(log_probs, Graph):
        alignments: Any = _alignments(log_probs, target, blank, "ctc_loss")
    else:
        if len(target) != len(log_probs):
            raise ValueError(
                f"ctc_loss: there must be one target per graph, "
                f"but there are {len(target)} targets for {len(log_probs)} graphs"
            )
        alignments = [
            _alignments(graph, labels, blank, f"ctc_loss (element {i} of {len(target)})")
            for i, (graph, labels) in enumerate(zip(log_probs, target, strict=True))
        ]
    return negate(forward_score(intersect(alignments, log_probs)))


def _alignments(log_probs: Graph, target: Sequence[int], blank: int, op: str) -> Graph:
    labels = [operator.index(label) for label in target]
    _check_labels(log_probs, labels, blank, op)
    graph: Graph = ctc_graph(labels, blank)
    return graph


def _check_labels(log_probs: Graph, labels: list[int], blank: int, op: str) -> None:
    weights = np.asarray(log_probs.weights_view())
    # Only dense emissions have a known number of labels.
    end = weights.shape[1] if weights.ndim == 2 else np.iinfo(np.int32).max
    for name, label in [("blank_idx", blank), *(("a target label", label) for label in labels)]:
        if not 0 <= label < end:
            raise ValueError(f"{op}: {name} must be between 0 and {end - 1}, but it is {label}")
    if blank in labels:
        raise ValueError(
            f"{op}: a target label must differ from the blank, "
            f"but label {labels.index(blank)} of the target is {blank}"
        )
