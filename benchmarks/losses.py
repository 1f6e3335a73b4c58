"""Losses through autograd, compared with PyTorch's on the same tensors.

Times are for a call of the loss and its backward, with all graphs built inside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import arcgrad as ag
import arcgrad.torch as agt

from .harness import Report, Row, Settings, Timing, faster_by, interleave, takes_under
from .trellis import CTC_SHAPES, THREADS, Shape, agree, clock_for, threads_text, with_threads

# Seconds of gtn's ASG loss on this kind of machine, one thread; it does not install here.
GTN_ASG = {(16, 150, 30, 40): 215e-3, (1, 100, 500, 20): 4820e-3}


def run(settings: Settings) -> Report:
    threads = ag.get_num_threads(), torch.get_num_threads()
    rows: list[Row] = []
    try:
        for shape in CTC_SHAPES:
            for count in THREADS:
                rows += ctc_rows(shape, count, settings)
        for shape in (Shape(16, 150, 30, 40), Shape(1, 100, 500, 20)):
            rows += asg_rows(shape, settings)
        rows += overhead_rows(settings)
    finally:
        ag.set_num_threads(threads[0])
        torch.set_num_threads(threads[1])
    return Report(rows, [], [f"torch {torch.__version__}; float32; shapes are B x T x C x target"])


def differentiate(inputs: list[torch.Tensor], loss: Callable[[], torch.Tensor]) -> None:
    for x in inputs:
        x.grad = None
    loss().backward()


def ctc_rows(shape: Shape, count: int, settings: Settings) -> list[Row]:
    if settings.quick:
        shape = Shape(min(shape.batch, 4), shape.length // 5, min(shape.labels, 50), 8)
    torch.manual_seed(0)
    logits = torch.randn(shape.length, shape.batch, shape.labels)
    log_probs = logits.log_softmax(-1).requires_grad_()
    logits.requires_grad_()
    targets = torch.randint(1, shape.labels, (shape.batch, shape.target))
    lengths = [torch.full((shape.batch,), n) for n in (shape.length, shape.target)]

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.ctc_loss(x, targets, *lengths)

    def ours(x: torch.Tensor, **options: Any) -> torch.Tensor:
        return agt.ctc_loss(x, targets, *lengths, **options)

    losses = {
        "ours": (log_probs, lambda: ours(log_probs)),
        "torch": (log_probs, lambda: theirs(log_probs)),
        "ours from logits": (logits, lambda: ours(logits, from_logits=True)),
        "torch from logits": (logits, lambda: theirs(logits.log_softmax(-1))),
    }
    for kind in ("", " from logits"):
        values = [losses[name + kind][1]().item() for name in ("ours", "torch")]
        agree(f"ctc_loss{kind} {shape}", *values)
    tasks = {
        name: with_threads(count, partial(differentiate, [x], loss))
        for name, (x, loss) in losses.items()
    }
    times = interleave(f"ctc_loss {shape}, {count}", tasks, clock_for(count, settings))
    suffix = f"{shape}, {threads_text(count)}"
    many = faster_by(8)
    return [
        Row(
            f"ctc_loss + backward {suffix}",
            times["ours"],
            "torch",
            times["torch"],
            faster_by(2.5) if shape.batch == 1 else many,
        ),
        Row(
            f"ctc_loss from logits + backward {suffix}",
            times["ours from logits"],
            "torch",
            times["torch from logits"],
            None if shape.batch == 1 else many,
        ),
    ]


def asg_rows(shape: Shape, settings: Settings) -> list[Row]:
    key = tuple(shape)
    if settings.quick:
        shape = Shape(min(shape.batch, 2), 20, 20, 5)
    torch.manual_seed(0)
    loss = agt.ASGLoss(shape.labels, reduction="sum")
    torch.nn.init.normal_(loss.transitions)
    x = torch.randn(shape.batch, shape.length, shape.labels, requires_grad=True)
    targets = torch.randint(0, shape.labels, (shape.batch, shape.target))
    inputs = [x, loss.transitions]

    def loop() -> torch.Tensor:
        """Both recursions as loops over logsumexp."""
        start, between = loss.transitions[0], loss.transitions[1:]
        score = start + x[:, 0]
        allowed = torch.full((shape.batch, shape.target), -1e30)
        first = score.gather(1, targets[:, :1])
        allowed = torch.cat([first, allowed[:, 1:]], 1)
        stay = between[targets, targets]
        step = between[targets[:, :-1], targets[:, 1:]]
        for t in range(1, shape.length):
            score = torch.logsumexp(score[:, :, None] + between, 1) + x[:, t]
            come = torch.cat([torch.full((shape.batch, 1), -1e30), allowed[:, :-1] + step], 1)
            allowed = torch.logaddexp(allowed + stay, come) + x[:, t].gather(1, targets)
        return (score.logsumexp(1) - allowed[:, -1]).sum()

    agree(f"ASG {shape}", loss(x, targets).item(), loop().item())
    tasks = {
        "ours": with_threads(1, partial(differentiate, inputs, lambda: loss(x, targets))),
        "loop": with_threads(1, partial(differentiate, inputs, loop)),
    }
    times = interleave(f"ASG {shape}", tasks, settings)
    name = f"ASGLoss + backward {shape}, 1 thread"
    gtn = Timing.constant(GTN_ASG[key])
    return [
        Row(name, times["ours"], "torch loop", times["loop"], faster_by(10)),
        Row(name, times["ours"], "gtn", gtn, faster_by(30)),
    ]


class Empty(torch.autograd.Function):
    """The cost in torch of an empty function written in Python."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.grad = grad
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return ctx.grad, None


def overhead_rows(settings: Settings) -> list[Row]:
    """The cost of a call in addition to the work on graphs, for one small example."""
    length, labels, size = 150, 30, 40
    x = torch.randn(length, 1, labels).log_softmax(-1).requires_grad_()
    targets = torch.randint(1, labels, (1, size))
    lengths, sizes = torch.tensor([length]), torch.tensor([size])
    array, target = x.detach().numpy()[:, 0], targets.numpy()[0]
    grad = torch.zeros_like(x)

    def graphs(with_gradient: bool) -> None:
        emissions = ag.linear_graph(length, labels, array, copy=False)
        alignments = ag.tokens.ctc_graph(target)
        score = ag.negate(ag.forward_score(ag.intersect(alignments, emissions)))
        if with_gradient:
            ag.backward(score)

    def call() -> torch.Tensor:
        return agt.ctc_loss(x, targets, lengths, sizes)

    def empty() -> torch.Tensor:
        return Empty.apply(x, grad)  # type: ignore[no-any-return, no-untyped-call]

    tasks = {
        "call": with_threads(1, call),
        "graphs": with_threads(1, lambda: graphs(False)),
        "call + backward": with_threads(1, partial(differentiate, [x], call)),
        "graphs + backward": with_threads(1, lambda: graphs(True)),
        "empty": with_threads(1, partial(differentiate, [x], empty)),
    }
    times = interleave("overhead", tasks, settings)
    rows = []
    for kind in ("", " + backward"):
        extra = times[f"call{kind}"].minimum - times[f"graphs{kind}"].minimum
        target = takes_under(60e-6) if not kind else None
        rows.append(
            Row(f"ctc_loss{kind} beyond the graphs, B = 1", Timing.constant(extra), target=target)
        )
    rows.append(Row("an empty autograd.Function + backward", times["empty"]))
    return rows
