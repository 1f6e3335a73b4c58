"""Star temporal classification (STC), for targets in which labels are missing."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import arcgrad as ag
from arcgrad._arguments import checked

from ._leaves import to_host
from ._targets import Targets
from .sequence import Graphs, Reduction, SequenceLoss


class STCLoss(SequenceLoss):
    r"""Star temporal classification (STC), for targets with missing labels.

    Any labels may be missing before, between and after the labels of a target. A star stands for
    them: it matches a frame with the probability of all labels but the blank and the next label of
    the target. Every frame of a star adds a penalty :math:`\log p`, so that the model does not
    explain all frames by missing labels. The penalty starts at ``p0`` and approaches ``plast``:
    ``half_life`` calls in training halve the distance. With activation checkpointing by reentry,
    call ``backward`` before the next call.

    Args:
        blank: The label of the blank.
        p0: The first penalty, a probability.
        plast: The last penalty.
        half_life: The number of calls that halve the distance to ``plast``.
        self_loops: Whether a label may last several frames, as in CTC. By default it lasts one
            frame, so equal labels need no blank between them.
        from_logits: Apply ``log_softmax`` to the emissions as part of the loss; else they are
            log-probabilities.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        zero_infinity: Count an infinite loss, of a target that does not fit, as 0.
        nan: ``"raise"`` or ``"propagate"``.
        infeasible: ``"raise"`` for a target that does not fit, or ``"propagate"``.

    >>> import torch, arcgrad.torch as agt
    >>> loss = agt.STCLoss(p0=0.5, plast=0.9, half_life=1000)
    >>> x = torch.randn(2, 12, 10, requires_grad=True)
    >>> loss(x, [[3, 5], []]).backward()  # all labels of the second target are missing
    """

    penalty_steps: Tensor

    @checked
    def __init__(
        self,
        blank: int = 0,
        *,
        p0: float = 0.5,
        plast: float = 0.9,
        half_life: float = 1000.0,
        self_loops: bool = False,
        from_logits: bool = True,
        reduction: Reduction = "mean",
        zero_infinity: bool = False,
        nan: Literal["raise", "propagate"] = "raise",
        infeasible: Literal["raise", "propagate"] = "propagate",
    ) -> None:
        super().__init__(
            reduction=reduction, zero_infinity=zero_infinity, nan=nan, infeasible=infeasible
        )
        if not (0.0 < p0 <= 1.0 and 0.0 < plast <= 1.0 and half_life > 0.0):
            raise ValueError(
                "STCLoss: p0 and plast must be probabilities above 0 and half_life must be "
                f"positive, but they are {p0}, {plast} and {half_life}"
            )
        self.blank, self.p0, self.plast, self.half_life = blank, p0, plast, half_life
        self.self_loops, self.from_logits = self_loops, from_logits
        self.register_buffer("penalty_steps", torch.zeros((), dtype=torch.int64))

    def _penalty_after(self, steps: Tensor) -> Tensor:
        done = 0.5 ** (steps.double() / self.half_life)
        return self.plast + (self.p0 - self.plast) * done

    def _is_step(self) -> bool:
        """Whether a call is a step of training.

        Activation checkpointing calls the loss again inside of backward. Its first call may record
        no gradients, so their recording does not decide.
        """
        return self.training and (torch.compiler.is_compiling() or not _is_in_backward())

    def weights(self) -> tuple[Tensor, ...]:
        """The penalty of a call, a probability."""
        return (self._penalty_after(self.penalty_steps + self._is_step()),)

    def penalty(self) -> float:
        """The penalty of the last call in training."""
        return float(self._penalty_after(self.penalty_steps))

    def emissions(self, scores: Tensor, targets: Targets) -> Tensor:
        """Log-probabilities, with columns for the stars after those of the labels."""
        scores = to_host(scores)
        log_probs = scores.log_softmax(-1) if self.from_logits else scores
        return _with_stars(log_probs, self.blank, _used(targets))

    def forward(
        self, emissions: Tensor, targets: Any, lengths: Any = None, target_lengths: Any = None
    ) -> Tensor:
        """The loss of a batch; in training, the penalty approaches ``plast``."""
        loss = super().forward(emissions, targets, lengths, target_lengths)
        if self._is_step():
            self.penalty_steps += 1
        return loss

    def graphs(self, targets: Targets, *weights: Tensor) -> tuple[Graphs, Graphs | bool]:
        """The alignments of each target, with stars where labels may be missing."""
        star = targets.num_labels
        if not 0 <= self.blank < star:
            raise ValueError(
                f"STCLoss: the blank must be a label of the emissions, below {star}, but it is "
                f"{self.blank}"
            )
        sequences = targets.label_sequences()
        for i, label in ((i, label) for i, target in enumerate(sequences) for label in target):
            if not 0 <= label < star or label == self.blank:
                raise ValueError(
                    f"STCLoss (example {i} of {targets.size}): a label of a target must be 0 to "
                    f"{star - 1} and not the blank ({self.blank}), but one is {label}"
                )
        column = {label: star + 1 + k for k, label in enumerate(_used(targets))}
        cost = math.log(weights[0].item())
        return [
            _star_graph(target, self.blank, star, column, cost, self.self_loops, targets.dtype)
            for target in sequences
        ], False


def _is_in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _used(targets: Targets) -> list[int]:
    """The labels that occur in targets."""
    return sorted({label for target in targets.label_sequences() for label in target})


def _with_stars(log_probs: Tensor, blank: int, used: list[int]) -> Tensor:
    """Log-probabilities with a column for any label, and one for any label but each used one."""
    labels = torch.arange(log_probs.shape[-1], device=log_probs.device) != blank
    others = log_probs[..., labels]
    # If only the blank is possible the star is impossible; logsumexp would have a NaN gradient.
    is_blank = (others == -torch.inf).all(-1, keepdim=True)
    star = torch.where(is_blank, 0.0, others).logsumexp(-1, keepdim=True)
    # If one label has all the probability of the star, eps is left: the gradient stays finite.
    label = (log_probs[..., used] - star).clamp(max=-torch.finfo(log_probs.dtype).eps)
    stars = torch.cat([star, star + torch.log(-torch.expm1(label))], -1)
    return torch.cat([log_probs, torch.where(is_blank, -torch.inf, stars)], -1)


def _star_graph(
    target: list[int],
    blank: int,
    star: int,
    column: dict[int, int],
    cost: float,
    self_loops: bool,
    dtype: npt.DTypeLike,
) -> ag.Graph:
    """A node per blank, label and star: blank k and star k come before label k."""
    size = len(target)
    arcs: list[tuple[int, int, int, float]] = []
    for k in range(size + 1):
        gap, any_label = 3 * k, 3 * k + 1
        missing = column[target[k]] if k < size else star
        before = [gap, any_label] + ([3 * k - 1] if k else [])
        arcs += [(node, gap, blank, 0.0) for node in before]
        arcs += [(node, any_label, missing, cost) for node in before]
        if k == size:
            continue
        here = 3 * k + 2
        enter = [gap, any_label]
        if k and not (self_loops and target[k] == target[k - 1]):
            enter.append(3 * k - 1)
        arcs += [(node, here, target[k], 0.0) for node in enter]
        if self_loops:
            arcs.append((here, here, target[k], 0.0))
    src, dst, label, weight = zip(*arcs, strict=True)
    # Paths end at the last blank, the last star or the last label.
    accept = [3 * size, 3 * size + 1] + ([3 * size - 1] if size else [])
    return ag.Graph.from_arrays(
        src,
        dst,
        label,
        weight=np.asarray(weight, dtype),
        start=[0],
        accept=accept,
        calc_grad=False,
    )
