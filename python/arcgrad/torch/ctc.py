"""Connectionist temporal classification, as torch has it."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

import arcgrad as ag

from ._compiled import compiled_losses
from ._targets import Targets
from .sequence import Graphs, Reduction, SequenceLoss, check_options, reduce


class CTCLoss(SequenceLoss):
    r"""A drop-in for :class:`torch.nn.CTCLoss`: faster, more accurate, twice differentiable.

    It takes the arguments of torch's and returns the same values. The gradient is the true one with
    respect to the input: minus the posteriors of the labels. (That of torch is the gradient with
    respect to the logits, and right only after a ``log_softmax``, where both agree.)

    Args:
        blank: The label of the blank.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        zero_infinity: Count infinite losses, of targets that do not fit, as 0.
        from_logits: The input are scores of any size, and the ``log_softmax`` is part of the loss.
        nan: ``"raise"`` for NaN or +inf in the input, or ``"propagate"`` as torch does.

    Called with the input ``[T, B, C]`` or ``[T, C]``, targets (padded ``[B, S]`` or concatenated),
    input lengths and target lengths.

    >>> import torch, arcgrad.torch as agt
    >>> log_probs = torch.randn(50, 16, 20).log_softmax(2).requires_grad_()
    >>> targets = torch.randint(1, 20, (16, 10))
    >>> lengths, target_lengths = torch.full((16,), 50), torch.full((16,), 10)
    >>> loss = agt.CTCLoss()(log_probs, targets, lengths, target_lengths)
    >>> torch.allclose(loss, torch.nn.CTCLoss()(log_probs, targets, lengths, target_lengths))
    True
    """

    batch_first = False

    def __init__(
        self,
        blank: int = 0,
        reduction: Reduction = "mean",
        zero_infinity: bool = False,
        *,
        from_logits: bool = False,
        nan: Literal["raise", "propagate"] = "raise",
    ) -> None:
        super().__init__(reduction=reduction, zero_infinity=zero_infinity, nan=nan)
        self.blank, self.from_logits = blank, from_logits

    def extra_repr(self) -> str:
        """The options, as modules of torch print them."""
        return f"blank={self.blank}, {super().extra_repr()}, from_logits={self.from_logits}"

    def graphs(self, targets: Targets, *weights: Tensor) -> tuple[Graphs, Graphs | bool]:
        """The alignments of targets; the normalizer are the emissions, or there is none."""
        alignments = ag.tokens.ctc_graph(
            targets.labels, self.blank, lengths=targets.lengths, num_labels=targets.num_labels
        )
        return alignments, self.from_logits


@cache
def _loss(blank: int, from_logits: bool, nan: Any) -> CTCLoss:
    return CTCLoss(blank, from_logits=from_logits, nan=nan)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _handle(blank: int, from_logits: bool, nan: Any) -> int:
    return _loss(blank, from_logits, nan)._handle


def ctc_loss(
    log_probs: Tensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
    *,
    from_logits: bool = False,
    nan: Literal["raise", "propagate"] = "raise",
) -> Tensor:
    """A drop-in for :func:`torch.nn.functional.ctc_loss`; :class:`CTCLoss` says what it does.

    Args:
        log_probs: Log-probabilities ``[T, B, C]`` or ``[T, C]``, or scores if ``from_logits``.
        targets: Labels, padded ``[B, S]`` or concatenated in one dimension.
        input_lengths: The number of frames of each example.
        target_lengths: The number of labels of each target.
        blank: The label of the blank.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        zero_infinity: Count infinite losses, of targets that do not fit, as 0.
        from_logits: Whether the ``log_softmax`` is part of the loss.
        nan: ``"raise"`` for NaN or +inf in the input, or ``"propagate"``.

    Returns:
        A tensor ``[]``, or with ``reduction="none"`` one entry per example.

    Raises:
        ValueError: If lengths or labels do not fit; the message names the example.

    >>> import torch, arcgrad.torch as agt
    >>> logits = torch.zeros(4, 1, 3, requires_grad=True)
    >>> loss = agt.ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], from_logits=True)
    >>> loss.backward()
    """
    check_options("ctc_loss", reduction, nan)
    if torch.compiler.is_compiling():
        losses, sizes = compiled_losses(
            _handle(blank, from_logits, nan), log_probs, targets, input_lengths, target_lengths, ()
        )
        return reduce(losses, sizes, reduction, zero_infinity)
    return _loss(blank, from_logits, nan)._reduced(
        log_probs, targets, input_lengths, target_lengths, reduction, zero_infinity
    )
