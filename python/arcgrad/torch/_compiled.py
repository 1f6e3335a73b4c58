"""Losses inside programs that torch.compile traces: one opaque operator.

Eagerly the bridge is used, which costs less per call. The operator runs it as well, once for the
value and once more for the gradient, so that nothing but tensors has to be kept.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("arcgrad::sequence_losses", mutates_args=())
def sequence_losses(
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
) -> Tensor:
    from .sequence import find_loss

    return find_loss(handle).losses(emissions, targets, lengths, target_lengths, *weights)


@sequence_losses.register_fake
def _(
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
) -> Tensor:
    from .sequence import find_loss

    batch = 1
    if emissions.dim() == 3:
        batch = emissions.shape[0 if find_loss(handle).batch_first else 1]
    is_double = emissions.dtype is torch.float64
    return emissions.new_empty((batch,), dtype=torch.float64 if is_double else torch.float32)


@torch.library.custom_op("arcgrad::sequence_losses_backward", mutates_args=())
def sequence_losses_backward(
    grad: Tensor,
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
) -> list[Tensor]:
    from .sequence import find_loss

    def differentiate() -> list[Tensor]:
        inputs = [x.detach().requires_grad_() for x in (emissions, *weights)]
        losses = find_loss(handle).losses(inputs[0], targets, lengths, target_lengths, *inputs[1:])
        found = torch.autograd.grad(losses, inputs, grad, allow_unused=True)
        return [
            torch.zeros_like(x) if g is None else g.contiguous()
            for g, x in zip(found, inputs, strict=True)
        ]

    # Inside an operator torch records nothing; in a thread of its own it does.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(differentiate).result()


@sequence_losses_backward.register_fake
def _(
    grad: Tensor,
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
) -> list[Tensor]:
    return [
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in (emissions, *weights)
    ]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    emissions, targets, lengths, target_lengths, weights, ctx.handle = inputs
    ctx.save_for_backward(emissions, targets, lengths, target_lengths, *weights)


def _backward(ctx: Any, grad: Tensor) -> Any:
    emissions, targets, lengths, target_lengths, *weights = ctx.saved_tensors
    found = sequence_losses_backward(
        grad, emissions, targets, lengths, target_lengths, weights, ctx.handle
    )
    return found[0], None, None, None, found[1:], None


sequence_losses.register_autograd(_backward, setup_context=_setup)


def as_tensor(values: Any) -> Tensor | None:
    """Lengths as a compiled program passes them on."""
    return values if values is None or isinstance(values, Tensor) else torch.tensor(values)


def compiled_losses(
    handle: int,
    emissions: Tensor,
    targets: Any,
    lengths: Any,
    target_lengths: Any,
    weights: tuple[Tensor, ...],
) -> tuple[Tensor, Callable[[], Tensor]]:
    """The losses of a batch through the operator, and the lengths of targets, which are tensors."""
    labels = torch.as_tensor(targets)
    sizes = as_tensor(target_lengths)
    losses = sequence_losses(emissions, labels, as_tensor(lengths), sizes, list(weights), handle)
    if sizes is None:
        sizes = torch.full((losses.shape[0],), labels.shape[-1])
    return losses, lambda: sizes
