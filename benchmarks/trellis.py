"""Graphs intersected with emissions, compared with PyTorch on the same arrays.

Times include building the graphs with public functions from NumPy arrays. PyTorch gets tensors in
its fastest layout and as many threads as arcgrad. Without PyTorch, its rows are measured without a
peer and not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import arcgrad as ag
from arcgrad import tokens

from .harness import (
    Report,
    Row,
    Settings,
    Target,
    Task,
    Timing,
    costs_at_most,
    faster_by,
    interleave,
    takes_under,
)

torch: ModuleType | None
try:
    import torch
except ImportError:
    torch = None

Floats = npt.NDArray[np.float32]
Table = tuple[str, list[str], list[list[str]]]

# Seconds, one thread. gtn was measured on this kind of machine (2 cores, AMD EPYC with AVX2) on the
# same shapes; it is not run because it does not install on a current Python. Its times with
# the bigrams are per example, for the whole loss, of which the normalizer is the larger part.
GTN = {"convolution": 922e-3, "back-off 2000": 100e-3, "back-off 20000": 328e-3}

TORCH = "torch"
THREADS = (1, 2)


def run(settings: Settings) -> Report:
    threads = ag.get_num_threads(), torch.get_num_threads() if torch else 0
    rows: list[Row] = []
    tables: list[Table] = []
    try:
        for shape in CTC_SHAPES:
            for count in THREADS:
                rows += ctc_rows(shape, count, settings)
        rows += [row for count in THREADS for row in bigram_rows(count, settings)]
        rows += [large_bigram_row(settings)]
        rows += back_off_rows(settings)
        rows += convolution_rows(settings)
        rows += thread_rows(settings)
        rows += slope_rows(settings)
        rows += path_rows(settings)
        rows += second_order_rows(settings)
        rows += checkpoint_rows(settings)
        tables.append(rate_table(rows))
    finally:
        set_threads(threads[0])
        if torch:
            torch.set_num_threads(threads[1])
    return Report(rows, tables, notes())


def notes() -> list[str]:
    peer = (
        f"torch {torch.__version__}" if torch else "torch is NOT INSTALLED: no row is set beside it"
    )
    return [
        f"{peer}; float32; shapes are B x T x C (x target length); building graphs is timed too",
        "gtn: constants, measured on this kind of machine with one thread; "
        "two threads: always wall time",
    ]


def set_threads(count: int) -> None:
    ag.set_num_threads(count)
    if torch:
        torch.set_num_threads(count)


def with_threads(count: int, call: Callable[[], Any]) -> Task:
    """A task that runs with this many threads; setting them is not timed."""
    return Task(lambda _: call(), partial(set_threads, count))


def clock_for(count: int, settings: Settings) -> Settings:
    """Processor time does not shrink with more threads."""
    return settings if count == 1 else replace(settings, cpu=False)


def threads_text(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def against_torch(
    measure: str, ours: Timing, theirs: Timing | None, target: Target | None, **details: Any
) -> Row:
    if theirs is None:
        return Row(measure, ours, details=details)
    return Row(measure, ours, TORCH, theirs, target, details)


def emissions(array: Floats, *, calc_grad: bool = True) -> list[ag.Graph]:
    """One dense linear graph per example of [B, T, C], without a copy."""
    return ag.linear_graphs(array, calc_grad=calc_grad, copy=False)


def log_softmax(array: npt.NDArray[np.float64]) -> Floats:
    shifted = array - array.max(axis=-1, keepdims=True)
    total = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return np.asarray(shifted - total, np.float32)


def agree(what: str, ours: float, theirs: float) -> None:
    """Check that both give the same answer."""
    if not math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-3):
        raise AssertionError(f"{what}: ours is {ours}, but torch's is {theirs}")


class Case:
    """Emissions [B, T, C], and how to build the graphs to intersect with."""

    array: Floats

    def graphs(self) -> Any:
        """One graph for every example, or one for all."""
        raise NotImplementedError

    def product(self) -> list[ag.Graph]:
        return ag.intersect(self.graphs(), emissions(self.array))

    def scores(self) -> list[ag.Graph]:
        return ag.forward_score(self.product())

    def gradient(self) -> None:
        ag.backward(self.scores())

    def forward(self) -> None:
        with ag.no_grad():
            self.scores()

    def path(self) -> None:
        with ag.no_grad():
            ag.viterbi_path(self.product())

    def hessian(self, vectors: list[Floats]) -> None:
        inputs = emissions(self.array)
        ag.hvp(ag.forward_score(ag.intersect(self.graphs(), inputs)), inputs, vectors)


# CTC


class Shape(NamedTuple):
    batch: int
    length: int
    labels: int
    target: int

    def __str__(self) -> str:
        return " x ".join(map(str, self))


CTC_SHAPES = [
    Shape(1, 150, 30, 40),
    Shape(32, 150, 30, 40),
    Shape(32, 250, 1000, 50),
    Shape(8, 1000, 80, 150),
]


class Ctc(Case):
    """Random emissions and targets, with our loss and torch's."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.shape = shape
        self.array = log_softmax(rng.normal(size=shape[:3]))
        labels = rng.integers(1, shape.labels, (shape.batch, shape.target))
        self.targets = labels
        if torch:
            self._log_probs = torch.from_numpy(self.array.transpose(1, 0, 2).copy())
            self._log_probs.requires_grad_()
            self._targets = torch.from_numpy(labels)
            self._lengths = [torch.full((shape.batch,), n) for n in (shape.length, shape.target)]

    def graphs(self) -> Any:
        return tokens.ctc_graph(self.targets)

    def scores(self) -> list[ag.Graph]:
        """The losses, as torch has them."""
        return ag.negate(super().scores())

    def torch_loss(self) -> Any:
        assert torch
        loss = torch.nn.functional.ctc_loss
        return loss(self._log_probs, self._targets, *self._lengths, blank=0, reduction="sum")

    def torch_gradient(self) -> None:
        self._log_probs.grad = None
        self.torch_loss().backward()

    def torch_forward(self) -> None:
        assert torch
        with torch.no_grad():
            self.torch_loss()

    def check(self) -> None:
        if torch:
            ours = sum(score.item() for score in self.scores())
            agree(f"CTC {self.shape}", ours, self.torch_loss().item())


def ctc_rows(shape: Shape, count: int, settings: Settings) -> list[Row]:
    if settings.quick:
        shape = Shape(
            min(shape.batch, 4), shape.length // 5, min(shape.labels, 50), shape.target // 5
        )
    case = Ctc(shape)
    case.check()
    tasks = {"gradient": case.gradient, "forward": case.forward}
    if torch:
        tasks |= {"torch gradient": case.torch_gradient, "torch forward": case.torch_forward}
    timed = {name: with_threads(count, call) for name, call in tasks.items()}
    times = interleave(f"CTC {shape}, {count}", timed, clock_for(count, settings))
    suffix = f"{shape}, {threads_text(count)}"
    fast = faster_by(4 if shape.batch == 1 else 10)
    return [
        against_torch(
            f"CTC loss + gradient {suffix}", times["gradient"], times.get("torch gradient"), fast
        ),
        against_torch(
            f"CTC loss {suffix}", times["forward"], times.get("torch forward"), faster_by(6)
        ),
    ]


# Dense bigrams


class Bigram(Case):
    """The normalizer of a dense bigram: score, and gradients to emissions and transitions."""

    def __init__(self, batch: int, length: int, labels: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.array = rng.normal(size=(batch, length, labels)).astype(np.float32)
        self.weight = rng.normal(size=labels + labels**2).astype(np.float32)
        self.nodes = np.arange(labels, dtype=np.int32)
        # One arc into each node from the start, then all transitions.
        self.src = np.concatenate([np.full(labels, labels), np.repeat(self.nodes, labels)])
        self.dst = np.concatenate([self.nodes, np.tile(self.nodes, labels)])
        # Forward, backward and the gradient of the transitions are one matrix product each.
        self.flops = 3 * 2 * batch * length * labels**2
        self.arcs = len(self.src)
        if torch:
            leaves = (
                self.array,
                self.weight[:labels],
                self.weight[labels:].reshape(labels, labels),
            )
            self._leaves = [torch.from_numpy(leaf.copy()).requires_grad_() for leaf in leaves]

    def graphs(self) -> Any:
        return ag.Graph.from_arrays(
            self.src,
            self.dst,
            self.dst,
            weight=self.weight,
            start=[len(self.nodes)],
            accept=self.nodes,
        )

    def torch_score(self) -> Any:
        assert torch
        array, start, transitions = self._leaves
        alpha = start + array[:, 0]
        for t in range(1, array.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + array[:, t]
        return torch.logsumexp(alpha, dim=1).sum()

    def torch_gradient(self) -> None:
        for leaf in self._leaves:
            leaf.grad = None
        self.torch_score().backward()


def bigram_rows(count: int, settings: Settings) -> list[Row]:
    rows = []
    for shape, target in (((16, 150, 30), 30), ((1, 100, 500), 15)):
        case = Bigram(*((2, 10, 20) if settings.quick else shape))
        tasks = {"arcgrad": with_threads(count, case.gradient)}
        if torch:
            agree("bigram", sum(s.item() for s in case.scores()), case.torch_score().item())
            tasks[TORCH] = with_threads(count, case.torch_gradient)
        measure = f"bigram + both gradients {' x '.join(map(str, shape))}, {threads_text(count)}"
        times = interleave(measure, tasks, clock_for(count, settings))
        ours, theirs = times["arcgrad"], times.get(TORCH)
        details = {"flops": case.flops}
        rows.append(against_torch(measure, ours, theirs, faster_by(target), **details))
    return rows


def large_bigram_row(settings: Settings) -> Row:
    """Without a peer: the loop in torch would need 13 GB."""
    case = Bigram(*((2, 10, 50) if settings.quick else (32, 100, 1000)))
    name = "bigram + both gradients 32 x 100 x 1000, 1 thread"
    times = interleave(name, {"arcgrad": with_threads(1, case.gradient)}, settings)
    target = takes_under(case.flops / 65e9)
    return Row(name, times["arcgrad"], target=target, details={"flops": case.flops})


# Back-off bigrams


class BackOff(Case):
    """The normalizer of a bigram with back-off: sparse, with epsilon arcs."""

    def __init__(
        self, batch: int, length: int, labels: int, num_bigrams: int, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.array = rng.normal(size=(batch, length, labels)).astype(np.float32)
        words = np.arange(1, labels + 1, dtype=np.int32)
        pairs = rng.choice(labels**2, num_bigrams, replace=False)
        back, end = np.full(labels, 0), np.full(labels, labels + 1)
        # Unigrams out of node 0, back-off to it, end scores, and the bigrams.
        src = [back, words, words, 1 + pairs // labels]
        dst = [words, back, end, 1 + pairs % labels]
        label = [words - 1, np.full(labels, -1), np.full(labels, -1), pairs % labels]
        self.src, self.dst, self.label = (
            np.concatenate(column).astype(np.int32) for column in (src, dst, label)
        )
        self.end = labels + 1
        self.arcs = len(self.src)
        self.steps = self.arcs * batch * length
        self.weight = (rng.normal(size=self.arcs) - 3).astype(np.float32)

    def graphs(self) -> Any:
        return ag.Graph.from_arrays(
            self.src, self.dst, self.label, weight=self.weight, start=[0], accept=[self.end]
        )


def back_off_rows(settings: Settings) -> list[Row]:
    rows = []
    for num_bigrams in (2_000, 20_000):
        batch, length, labels = (2, 5, 200) if settings.quick else (8, 100, 1000)
        case = BackOff(batch, length, labels, num_bigrams)
        name = f"back-off bigram + both gradients, {num_bigrams} bigrams, {case.arcs} arcs"
        times = interleave(name, {"arcgrad": with_threads(1, case.gradient)}, settings)
        ours = times["arcgrad"]
        details = {"steps": case.steps}
        rows.append(Row(name, ours, target=takes_under(1.2e-9 * case.steps), details=details))
        constant = Timing.constant(GTN[f"back-off {num_bigrams}"])
        if not settings.quick:
            rows.append(Row(f"{name}, per example", ours.per(batch), "gtn (constant)", constant))
    return rows


# Convolution


class Convolution:
    """Small CTC graphs as convolution kernels on windows of emissions, by ``outer_score``."""

    def __init__(self, kernels: int, batch: int, windows: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.window, self.stride, labels = 5, 4, 80
        length = self.window + self.stride * (windows - 1)
        self.array = rng.normal(size=(batch, length, labels)).astype(np.float32)
        # Two different labels each: 5 nodes and 10 arcs.
        first = rng.integers(1, labels, kernels)
        second = 1 + (first + rng.integers(0, labels - 2, kernels)) % (labels - 1)
        self.targets = np.stack([first, second], axis=1)
        self.arcs = tokens.ctc_graph(self.targets[0]).num_arcs()
        self.weights = rng.normal(size=(kernels, self.arcs)).astype(np.float32)
        self.steps = kernels * batch * windows * self.window * self.arcs

    def gradient(self) -> None:
        kernels = tokens.ctc_graph(self.targets)
        for kernel, weight in zip(kernels, self.weights, strict=True):
            kernel.set_weights(weight)
            kernel.calc_grad = True
        inputs = emissions(self.array)
        ag.backward(ag.outer_score(kernels, inputs, window=self.window, stride=self.stride))


def convolution_rows(settings: Settings) -> list[Row]:
    case = Convolution(*((10, 2, 3) if settings.quick else (200, 8, 25)))
    name = f"200 kernels of {case.arcs} arcs on 8 x 25 windows of 5 x 80, all gradients"
    times = interleave(name, {"arcgrad": with_threads(1, case.gradient)}, settings)
    constant = Timing.constant(GTN["convolution"])
    details = {"steps": case.steps}
    return [Row(name, times["arcgrad"], "gtn (constant)", constant, faster_by(100), details)]


# Threads, slopes, and the rest


def ctc(settings: Settings, *shape: int) -> tuple[str, Ctc]:
    quick = Shape(2, 40, 20, 5)
    return f"CTC {Shape(*shape)}", Ctc(quick if settings.quick else Shape(*shape))


def bigram(settings: Settings, *shape: int) -> tuple[str, Bigram]:
    name = f"bigram {' x '.join(map(str, shape))}"
    return name, Bigram(*((2, 10, 20) if settings.quick else shape))


def back_off(settings: Settings, *shape: int) -> tuple[str, BackOff]:
    name = f"back-off bigram {' x '.join(map(str, shape[:3]))}"
    return name, BackOff(*((2, 5, 50, 200) if settings.quick else shape))


def thread_rows(settings: Settings) -> list[Row]:
    rows = []
    for name, case in (
        ctc(settings, 32, 150, 30, 40),
        ctc(settings, 16, 1000, 80, 150),
        bigram(settings, 16, 150, 30),
        back_off(settings, 16, 100, 1000, 20_000),
    ):
        tasks = {threads_text(count): with_threads(count, case.gradient) for count in THREADS}
        times = interleave(f"{name}, threads", tasks, clock_for(2, settings))
        two, one = times["2 threads"], times["1 thread"]
        rows.append(Row(f"{name} + gradients, 2 threads", two, "1 thread", one, faster_by(1.7)))
    return rows


def slope_rows(settings: Settings) -> list[Row]:
    """Time per unit of size at the largest size, divided by the same at the smallest."""
    small = settings.quick
    bigrams = (2_000, 4_000) if small else (2_000, 20_000, 200_000)
    sparse = [BackOff(8, 5 if small else 50, 1000, count) for count in bigrams]
    sizes: dict[str, list[tuple[int, Case]]] = {
        "examples": [
            (count, Ctc(Shape(count, 30 if small else 150, 30, 5 if small else 40)))
            for count in ((8, 16) if small else (8, 32, 128))
        ],
        "frames": [
            (length, Ctc(Shape(2 if small else 8, length, 30, 10 if small else 40)))
            for length in ((50, 100) if small else (125, 500, 2000, 8000))
        ],
        "arcs": [(case.arcs, case) for case in sparse],
    }
    rows = []
    for unit, cases in sizes.items():
        tasks = {str(size): with_threads(1, case.gradient) for size, case in cases}
        times = interleave(f"slope in {unit}", tasks, settings)
        per_unit = [times[str(size)].per(size) for size, _ in cases]
        details = {unit: [size for size, _ in cases], "min_s": [t.minimum for t in per_unit]}
        name = f"slope in {unit}: time per unit at {cases[-1][0]}"
        peer = f"at {cases[0][0]}"
        rows.append(Row(name, per_unit[-1], peer, per_unit[0], costs_at_most(1.5), details))
    return rows


def path_rows(settings: Settings) -> list[Row]:
    rows = []
    for name, case in (
        ctc(settings, 32, 150, 30, 40),
        ctc(settings, 8, 1000, 80, 150),
        bigram(settings, 16, 150, 30),
        back_off(settings, 8, 100, 1000, 20_000),
    ):
        tasks = {"path": with_threads(1, case.path), "forward": with_threads(1, case.forward)}
        times = interleave(f"{name}, path", tasks, settings)
        path, forward = times["path"], times["forward"]
        measure = f"viterbi_path of {name}"
        rows.append(Row(measure, path, "forward alone", forward, costs_at_most(1)))
    return rows


def second_order_rows(settings: Settings) -> list[Row]:
    """Hessian-vector products of the emissions, with the bound that plain graphs have."""
    rows = []
    for name, case in (
        ctc(settings, 32, 150, 30, 40),
        bigram(settings, 16, 150, 30),
        back_off(settings, 8, 100, 1000, 2_000),
    ):
        noise = np.random.default_rng(1).normal(size=case.array.shape)
        vectors = list(noise.astype(np.float32))
        tasks = {
            "hvp": with_threads(1, partial(case.hessian, vectors)),
            "gradient": with_threads(1, case.gradient),
        }
        times = interleave(f"{name}, hvp", tasks, settings)
        hvp, gradient = times["hvp"], times["gradient"]
        rows.append(Row(f"hvp of {name}", hvp, "score + gradient", gradient, costs_at_most(6)))
    return rows


def with_history(limit: int, call: Callable[[], Any]) -> Task:
    def setup() -> None:
        set_threads(1)
        ag.set_history_limit(limit)

    return Task(lambda _: call(), setup)


def checkpoint_rows(settings: Settings) -> list[Row]:
    """A history of at most 64 KiB, so that nearly everything is computed twice."""
    before = ag.get_history_limit()
    rows = []
    try:
        for name, case in (
            ctc(settings, 4, 8000, 30, 40),
            bigram(settings, 16, 600, 30),
            back_off(settings, 8, 400, 1000, 2_000),
        ):
            tasks = {
                "checkpoints": with_history(1 << 16, case.gradient),
                "whole": with_history(1 << 40, case.gradient),
            }
            times = interleave(f"{name}, checkpoints", tasks, settings)
            measure = f"{name} + gradients, checkpointed"
            part, whole = times["checkpoints"], times["whole"]
            rows.append(Row(measure, part, "all kept", whole, costs_at_most(1.6)))
    finally:
        ag.set_history_limit(before)
    return rows


def rate_table(rows: Sequence[Row]) -> Table:
    """Operations per second, where their number is known."""
    lines = []
    for row in rows:
        seconds = row.ours.minimum
        rate = f"{row.details['flops'] / seconds / 1e9:.1f}" if "flops" in row.details else ""
        cost = f"{1e9 * seconds / row.details['steps']:.2f}" if "steps" in row.details else ""
        if rate or cost:
            lines.append([row.measure, rate, cost])
    return "rates, by the minimum", ["measure", "GFLOP/s", "ns per arc, frame and example"], lines
