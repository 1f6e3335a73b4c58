"""The convolution whose kernels are graphs, and an ordinary one, both as layers of PyTorch.

Times are for a forward and a backward pass, with gradients of the input and the kernels.
"""

from __future__ import annotations

import numpy as np
import torch

import arcgrad as ag
import arcgrad.torch as agt

from .harness import Report, Row, Settings, Task, Timing, costs_at_most, faster_by, interleave

# Seconds, one thread, measured on this kind of machine (2 cores, AMD EPYC with AVX2); gtn is not
# run here because it does not install on a current Python.
GTN = {1: 99.7e-3, 8: 942e-3}

LABELS, KERNELS, WINDOW, STRIDE = 80, 200, 5, 4


def pieces(count: int) -> list[list[int]]:
    """Word pieces of two and three different labels; 200 of them have 410 labels in all."""
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(count) % 20 == 0, 3, 2)
    return [rng.choice(np.arange(1, LABELS), size, replace=False).tolist() for size in sizes]


def training_step(layer: torch.nn.Module, x: torch.Tensor) -> Task:
    x.requires_grad_()

    def setup() -> None:
        x.grad = None
        layer.zero_grad()

    return Task(lambda _: layer(x).sum().backward(), setup)


def run(settings: Settings) -> Report:
    threads = ag.get_num_threads(), torch.get_num_threads()
    ag.set_num_threads(1)
    torch.set_num_threads(1)
    count, frames = (10, 20) if settings.quick else (KERNELS, 100)
    geometry = (WINDOW, STRIDE, WINDOW // 2)
    kernels = pieces(count)
    layer = agt.ConvTransducer1d(LABELS, kernels, *geometry)
    best = agt.ConvTransducer1d(LABELS, kernels, *geometry, viterbi=True)
    conv = torch.nn.Conv1d(LABELS, count, *geometry)
    rows = []
    try:
        for batch in (1, 8):
            name = f"{LABELS} -> {count}, k={WINDOW}, s={STRIDE}, {batch} x {frames} frames"
            x = torch.randn(batch, frames, LABELS)
            tasks = {
                "ours": training_step(layer, x),
                "viterbi": training_step(best, x.clone()),
                "torch": training_step(conv, x.transpose(1, 2).contiguous()),
            }
            times = interleave(name, tasks, settings)
            ours, gtn = times["ours"], Timing.constant(GTN[batch])
            rows.append(Row(name, ours, "gtn (constant)", gtn, faster_by(60)))
            limit = costs_at_most(5) if batch == 8 else None
            rows.append(Row(name, ours, "torch Conv1d", times["torch"], limit))
            rows.append(Row(f"{name}, best paths", times["viterbi"], "gtn (constant)", gtn))
    finally:
        ag.set_num_threads(threads[0])
        torch.set_num_threads(threads[1])
    return Report(rows, notes=[f"{layer.weight.numel()} arcs"])
