"""Losses inside programs that torch.compile traces: one opaque operator.

Importing this module imports torch's compiler, which takes longer than torch itself. So it is
imported only while torch.compile traces.

The operator computes a loss as an eager call does, once for the value and once more for the
gradient: between the two it keeps tensors only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from ._registry import find

# Stated and not inferred: up to version 2.6 torch cannot read postponed or modern annotations.
_ARGUMENTS = (
    "Tensor emissions, Tensor targets, Tensor? lengths, Tensor? target_lengths, Tensor[] weights, "
    "int handle, str reduction, bool zero_infinity"
)


@torch.library.custom_op(
    "arcgrad::sequence_loss", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor"
)
def sequence_loss(
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
    reduction: str,
    zero_infinity: bool,
) -> Tensor:
    return find(handle)._compute(
        emissions, targets, lengths, target_lengths, tuple(weights), reduction, zero_infinity
    )


@sequence_loss.register_fake
def _(
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
    reduction: str,
    zero_infinity: bool,
) -> Tensor:
    is_scalar = reduction != "none" or emissions.dim() == 2
    batch = 0 if find(handle).batch_first else 1
    dtype = torch.float64 if emissions.dtype is torch.float64 else torch.float32
    return emissions.new_empty(() if is_scalar else (emissions.shape[batch],), dtype=dtype)


@torch.library.custom_op(
    "arcgrad::sequence_loss_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_ARGUMENTS}) -> Tensor[]",
)
def sequence_loss_backward(
    grad: Tensor,
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
    reduction: str,
    zero_infinity: bool,
) -> list[Tensor]:
    def differentiate() -> list[Tensor]:
        inputs = [x.detach().requires_grad_() for x in (emissions, *weights)]
        loss = find(handle)._compute(
            inputs[0],
            targets,
            lengths,
            target_lengths,
            tuple(inputs[1:]),
            reduction,
            zero_infinity,
        )
        found = torch.autograd.grad(loss, inputs, grad, allow_unused=True)
        return [
            torch.zeros_like(x) if g is None else g.contiguous()
            for g, x in zip(found, inputs, strict=True)
        ]

    # Inside an operator torch records nothing, but in another thread it does.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(differentiate).result()


@sequence_loss_backward.register_fake
def _(
    grad: Tensor,
    emissions: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    weights: list[Tensor],
    handle: int,
    reduction: str,
    zero_infinity: bool,
) -> list[Tensor]:
    return [
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in (emissions, *weights)
    ]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, weights, ctx.handle, ctx.reduction, ctx.zero_infinity = inputs
    ctx.save_for_backward(*tensors, *weights)


def _backward(ctx: Any, grad: Tensor) -> Any:
    emissions, targets, lengths, target_lengths, *weights = ctx.saved_tensors
    found = sequence_loss_backward(
        grad,
        emissions,
        targets,
        lengths,
        target_lengths,
        weights,
        ctx.handle,
        ctx.reduction,
        ctx.zero_infinity,
    )
    return found[0], None, None, None, found[1:], None, None, None


sequence_loss.register_autograd(_backward, setup_context=_setup)


def compiled_loss(
    handle: int,
    emissions: Tensor,
    targets: Any,
    lengths: Any,
    target_lengths: Any,
    weights: tuple[Tensor, ...],
    reduction: str,
    zero_infinity: bool,
) -> Tensor:
    """The operator on arguments in any form that a loss takes, if they can be tensors."""
    if _is_ragged(targets):
        targets, sizes = _joined(targets)
        target_lengths = sizes if target_lengths is None else _agreed(sizes, target_lengths)
    out: Tensor = sequence_loss(
        emissions,
        torch.as_tensor(targets),
        _as_tensor(lengths),
        _as_tensor(target_lengths),
        list(weights),
        handle,
        reduction,
        zero_infinity,
    )
    return out


def _is_ragged(targets: Any) -> bool:
    """Whether targets are a list of sequences that do not form a matrix of whole numbers."""
    # Torch 2.4 cannot trace unions of types, nor hasattr.
    if not isinstance(targets, (list, tuple)):
        return False
    if not all(isinstance(target, (list, tuple, Tensor)) for target in targets):
        return False
    sizes = {len(target) for target in targets}
    return len(sizes) > 1 or 0 in sizes or any(isinstance(t, Tensor) for t in targets)


def _joined(targets: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """The labels of all targets one after the other, and the length of each target."""
    parts = [torch.as_tensor(target) for target in targets if len(target)]
    labels = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
    return labels, torch.tensor([len(target) for target in targets])


def _agreed(sizes: Tensor, lengths: Any) -> Tensor:
    """The lengths of targets; -1, which the operator refuses, where another length is given."""
    given = torch.as_tensor(lengths)
    if given.shape != sizes.shape:
        raise ValueError(
            f"SequenceLoss: there must be one target length per target, {len(sizes)} in all, but "
            f"their shape is {list(given.shape)}"
        )
    return torch.where(given == sizes, sizes, -1)


def _as_tensor(values: Any) -> Tensor | None:
    return values if values is None else torch.as_tensor(values)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def constant(make: Callable[..., Any], *args: Any) -> Any:
    """What a function returns, computed while tracing and compiled in as a constant."""
    return make(*args)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def forward_eagerly(module: nn.Module, *args: Any) -> Any:
    """The eager forward of a module: one graph break."""
    return module._forward(*args)  # type: ignore[operator]
