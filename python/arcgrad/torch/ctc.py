"""Connectionist temporal classification (CTC) with the arguments of torch's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

import arcgrad as ag
from arcgrad._arguments import checked

from ._targets import Targets
from .sequence import Graphs, Reduction, SequenceLoss, check_options


class CTCLoss(SequenceLoss):
    r"""A drop-in for :class:`torch.nn.CTCLoss`: faster, more accurate, twice differentiable.

    It takes the arguments of torch's and returns the same values. Its gradient is exact with
    respect to the input: minus the posteriors of the labels. (Torch returns the gradient with
    respect to the logits. The two agree after a ``log_softmax``, and only there.)

    Args:
        blank: The label of the blank.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        zero_infinity: Count an infinite loss, of a target that does not fit, as 0.
        from_logits: Apply ``log_softmax`` to the input as part of the loss.
        nan: ``"raise"`` for NaN or +inf in the input, or ``"propagate"`` as torch does.
        infeasible: ``"raise"`` for a target that does not fit, or ``"propagate"`` infinity.

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

    @checked
    def __init__(
        self,
        blank: int = 0,
        reduction: Reduction = "mean",
        zero_infinity: bool = False,
        *,
        from_logits: bool = False,
        nan: Literal["raise", "propagate"] = "raise",
        infeasible: Literal["raise", "propagate"] = "propagate",
    ) -> None:
        super().__init__(
            reduction=reduction, zero_infinity=zero_infinity, nan=nan, infeasible=infeasible
        )
        self.blank, self.from_logits = blank, from_logits

    def extra_repr(self) -> str:
        """The options, as modules of torch print them."""
        return f"blank={self.blank}, {super().extra_repr()}, from_logits={self.from_logits}"

    def graphs(self, targets: Targets, *weights: Tensor) -> tuple[Graphs, Graphs | bool]:
        """The alignments of targets, and whether the loss is normalized over all paths."""
        alignments = ag.tokens.ctc_graph(
            targets.labels, self.blank, lengths=targets.lengths, num_labels=targets.num_labels
        )
        return alignments, self.from_logits


# Typed, since 0.0 and False equal 0 but are no labels.
@lru_cache(maxsize=None, typed=True)
def _loss(
    blank: int, reduction: Reduction, from_logits: bool, nan: Any, infeasible: Any
) -> CTCLoss:
    check_options("ctc_loss", reduction, nan, infeasible)
    return CTCLoss(blank, reduction, from_logits=from_logits, nan=nan, infeasible=infeasible)


def _handle(*options: Any) -> int:
    return _loss(*options)._handle


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
    infeasible: Literal["raise", "propagate"] = "propagate",
) -> Tensor:
    """A drop-in for :func:`torch.nn.functional.ctc_loss`; :class:`CTCLoss` has the details.

    Args:
        log_probs: Log-probabilities ``[T, B, C]`` or ``[T, C]``; any scores with ``from_logits``.
        targets: Labels, padded ``[B, S]`` or concatenated in one dimension.
        input_lengths: The number of frames of each example.
        target_lengths: The number of labels of each target.
        blank: The label of the blank.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        zero_infinity: Count an infinite loss, of a target that does not fit, as 0.
        from_logits: Apply ``log_softmax`` to the input as part of the loss.
        nan: ``"raise"`` for NaN or +inf in the input, or ``"propagate"``.
        infeasible: ``"raise"`` for a target that does not fit, or ``"propagate"`` infinity.

    Returns:
        A tensor ``[]``, or with ``reduction="none"`` one entry per example.

    Raises:
        ValueError: If lengths or labels do not fit; the message names the example.

    >>> import torch, arcgrad.torch as agt
    >>> logits = torch.zeros(4, 1, 3, requires_grad=True)
    >>> loss = agt.ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], from_logits=True)
    >>> loss.backward()
    """
    options = blank, reduction, from_logits, nan, infeasible
    call = log_probs, targets, input_lengths, target_lengths, (), reduction, zero_infinity
    if torch.compiler.is_compiling():
        from ._compiled import compiled_loss, constant

        return compiled_loss(constant(_handle, *options), *call)
    try:
        loss = _loss(*options)
    except TypeError as error:
        if not str(error).startswith("unhashable"):
            raise
        check_options("ctc_loss", reduction, nan, infeasible)
        raise TypeError(
            "ctc_loss: blank must be a whole number and from_logits True or False, but they are "
            f"{blank!r} and {from_logits!r}"
        ) from None
    return loss._compute(*call)
