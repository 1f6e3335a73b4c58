"""Losses and layers on two threads compared with one, in wall time.

Two threads are never twice as fast, and on a virtual machine often less, because the host moves the
processors about. So each measurement has two yardsticks in the same interleaved run: the CTC loss
of torch, and two threads that compute hashes, which share nothing.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

import arcgrad as ag
import arcgrad.torch as agt

from . import convolution
from .harness import Report, Row, Settings, Task, faster_by, interleave
from .losses import differentiate
from .pieces import pruned_graph, random_pieces, step, transition_step
from .trellis import Shape, with_threads

Call = Callable[[], Any]


def run(settings: Settings) -> Report:
    settings = replace(settings, cpu=False)  # processor time does not shrink with more threads
    threads = ag.get_num_threads(), torch.get_num_threads()
    rows, lines = [], []
    pair = Pair(10 if settings.quick else 100)
    yardsticks = {
        "torch one": with_threads(1, ctc(32, torch.nn.functional.ctc_loss, settings)),
        "torch two": with_threads(2, ctc(32, torch.nn.functional.ctc_loss, settings)),
        "loops one": Task(lambda _: pair.one(), wait_for_torch),
        "loops two": Task(lambda _: pair.two(), wait_for_torch),
    }
    try:
        for name, call in cases(settings).items():
            tasks = {"one": with_threads(1, call), "two": with_threads(2, call), **yardsticks}
            times = interleave(name, tasks, settings)
            is_batch = "B = 1" not in name.split(", ")
            target = faster_by(1.7 if is_batch else 1.0)
            row = Row(f"{name}, 2 threads", times["two"], "1 thread", times["one"], target)
            rows.append(row)
            ratios = [
                times[f"{key} one"].minimum / times[f"{key} two"].minimum
                for key in ("torch", "loops")
            ]
            lines.append([name, *(f"{ratio:.2f}x" for ratio in [row.ratio_of_minima, *ratios])])
    finally:
        pair.stop()
        ag.set_num_threads(threads[0])
        torch.set_num_threads(threads[1])
    header = ["measure", "speed-up", "torch's CTC", "two loops"]
    extra = ("speed-up by a second thread, and what the machine allowed in this run", header, lines)
    return Report(rows, [extra], ["times are for a call of the loss or layer and its backward"])


def wait_for_torch() -> None:
    """Wait until the threads of torch no longer spin."""
    time.sleep(0.02)


class Pair:
    """The same work on one thread, and on two threads that share nothing."""

    def __init__(self, rounds: int) -> None:
        self._data, self._rounds = b"x" * 50_000, rounds
        self._begin, self._end = threading.Semaphore(0), threading.Semaphore(0)
        self._is_stopped = False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _work(self, rounds: int) -> None:
        for _ in range(rounds):
            hashlib.sha256(self._data).digest()  # without the GIL

    def _loop(self) -> None:
        while True:
            self._begin.acquire()
            if self._is_stopped:
                return
            self._work(self._rounds)
            self._end.release()

    def one(self) -> None:
        self._work(2 * self._rounds)

    def two(self) -> None:
        self._begin.release()
        self._work(self._rounds)
        self._end.acquire()

    def stop(self) -> None:
        self._is_stopped = True
        self._begin.release()
        self._thread.join()


def cases(settings: Settings) -> dict[str, Call]:
    """The calls by name. Shapes are B x T x C x target, as in ``losses``."""
    out: dict[str, Call] = {}
    for batch in (8, 32):
        out[f"CTC {Shape(batch, 150, 30, 40)}"] = ctc(batch, agt.ctc_loss, settings)
    for batch in (8, 16):
        out[f"ASG {Shape(batch, 150, 30, 40)}"] = asg(batch)
    graph = pruned_graph(settings.size(1000, 200), 20_000, np.random.default_rng(0))
    for batch in (4, 8):
        out[f"CTC + 20000 bigrams, B = {batch}"] = transition_step(graph, batch, settings)
    out["decompositions, 15 pieces, B = 8"] = decompositions(8, settings)
    for batch in (1, 8):
        out[f"convolution, 200 kernels, B = {batch}"] = convolve(batch, settings)
    out["32 tiny graphs, B = 1"] = tiny(32)
    return out


def ctc(batch: int, loss: Callable[..., torch.Tensor], settings: Settings) -> Call:
    length, labels, size = settings.size(150, 30), 30, settings.size(40, 8)
    torch.manual_seed(0)
    x = torch.randn(length, batch, labels).log_softmax(-1).requires_grad_()
    targets = torch.randint(1, labels, (batch, size))
    lengths = [torch.full((batch,), n) for n in (length, size)]
    return partial(differentiate, [x], lambda: loss(x, targets, *lengths))


def asg(batch: int) -> Call:
    torch.manual_seed(0)
    loss = agt.ASGLoss(30, reduction="sum")
    torch.nn.init.normal_(loss.transitions)
    x = torch.randn(batch, 150, 30, requires_grad=True)
    targets = torch.randint(0, 30, (batch, 40))
    return partial(differentiate, [x, loss.transitions], lambda: loss(x, targets))


def decompositions(batch: int, settings: Settings) -> Call:
    rng = np.random.default_rng(0)
    num_labels, length = settings.size(1000, 100), settings.size(100, 50)
    pieces = random_pieces(num_labels - 1, rng)
    lexicon = ag.lexicon.Lexicon(pieces, first_label=1)
    texts = ["".join(rng.choice(pieces, 15)) for _ in range(batch)]
    loss = agt.TransducerLoss(
        pieces, lexicon, blank="optional", allow_repeats=False, normalize=False
    )
    return step(loss, batch, length, num_labels, texts)


def convolve(batch: int, settings: Settings) -> Call:
    count, frames = settings.size(convolution.KERNELS, 10), settings.size(100, 20)
    kernels = convolution.pieces(count)
    window, stride = convolution.WINDOW, convolution.STRIDE
    layer = agt.ConvTransducer1d(convolution.LABELS, kernels, window, stride, window // 2)
    x = torch.randn(batch, frames, convolution.LABELS, requires_grad=True)
    return partial(differentiate, [x, layer.weight], lambda: layer(x).sum())


def tiny(count: int) -> Call:
    emissions = [ag.linear_graph(20, 10) for _ in range(count)]
    alignments = ag.tokens.ctc_graph([[1, 2, 3]] * count)
    return lambda: ag.backward(ag.forward_score(ag.intersect(alignments, emissions)))
