"""Time per arc of every linear op from 10^4 to 10^7 arcs.

Ops that only move arrays are limited by memory, so their rows are not judged; "scored" is such an
op with the score of its result, as most programs use it.

Each size has its own process, so that its peak memory can be read. The processes take turns, and so
do the ops, so that load on the machine affects every size alike. Only one runs at any time.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import arcgrad as ag

from .graphs import layered_dag
from .harness import (
    Report,
    Row,
    Settings,
    Task,
    Timing,
    clear_progress,
    costs_at_most,
    ratio_text,
    sample,
    show_progress,
)

WINDOW = 1_000
# Names in parentheses are not judged: their speed is that of the host's memory.
YARDSTICK = "(NumPy copy of weights)"
LAYOUTS: dict[str, int | None] = {f"window of {WINDOW} nodes": WINDOW, "all later nodes": None}


def is_judged(op: str) -> bool:
    return not op.startswith("(")


def linear_ops(num_arcs: int, window: int | None) -> dict[str, Task]:
    """Every op whose time is linear in the arcs, on graphs that record gradients."""
    arrays = layered_dag(num_arcs, window)
    # Built twice, so that ops on two graphs have to compare the structures.
    graph, same = arrays.graph(), arrays.graph()

    def score() -> ag.Graph:
        graph.zero_grad()
        return ag.forward_score(graph)

    ops: dict[str, Callable[[], Any]] = {
        "forward_score": partial(ag.forward_score, graph),
        "viterbi_score": partial(ag.viterbi_score, graph),
        "viterbi_path": partial(ag.viterbi_path, graph),
        "shortest_distance": partial(ag.shortest_distance, graph),
        "arc_posteriors": partial(ag.arc_posteriors, graph),
        "clone": partial(ag.clone, graph),
        "project_input": partial(ag.project_input, graph),
        "project_output": partial(ag.project_output, graph),
        "invert": partial(ag.invert, graph),
        "reverse": partial(ag.reverse, graph),
        "connect": partial(ag.connect, graph),
        "remove": partial(ag.remove, graph),
        "arc_sort": partial(ag.arc_sort, graph),
        "top_sort": partial(ag.top_sort, graph),
    }
    moving: dict[str, Callable[[], ag.Graph]] = {
        "union": partial(ag.union, [graph, same]),
        "concat": partial(ag.concat, [graph, same]),
        "closure": partial(ag.closure, graph),
        "negate": partial(ag.negate, graph),
        "add": partial(ag.add, graph, same),
        "subtract": partial(ag.subtract, graph, same),
        "scale": partial(ag.scale, graph, 0.5),
    }
    for name, op in moving.items():
        ops[f"({name})"] = op
        if name != "closure":  # the sum over the paths of a closure would not converge
            ops[f"{name}, scored"] = lambda op=op: ag.forward_score(op())
    ops["(all three)"] = lambda: ag.closure(ag.concat([ag.union([graph, same]), graph]))
    tasks = {"backward": Task(ag.backward, score)} | {name: Task(op) for name, op in ops.items()}
    return tasks | {YARDSTICK: Task(arrays.weight.copy)}


def serve(pipe: Connection, num_arcs: int, window: int | None, settings: Settings) -> None:
    """Time the op whose name comes in, until None comes; its first call each time is not timed."""
    ag.set_num_threads(1)
    tasks = linear_ops(num_arcs, window)
    seconds, most = (0.0, 1) if settings.quick else (0.05, 1_000)
    gc.disable()
    pipe.send(list(tasks))
    while (name := pipe.recv()) is not None:
        task = tasks[name]
        sample(task, 1, settings.clock)
        samples: list[float] = []
        begin = time.perf_counter()
        while not samples or (len(samples) < most and time.perf_counter() - begin < seconds):
            # The processor clock of a virtual machine sometimes stands still.
            if (duration := sample(task, 1, settings.clock)) > 0.0:
                samples.append(duration)
        pipe.send(samples)
    pipe.send(peak_bytes())


def peak_bytes() -> int:
    """The most memory this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Worker:
    """A process that holds graphs of one size."""

    def __init__(self, num_arcs: int, window: int | None, settings: Settings) -> None:
        self.num_arcs = num_arcs
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        arguments = (theirs, num_arcs, window, settings)
        self._process = spawn.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self.ops: list[str] = self._pipe.recv()

    def time(self, op: str) -> list[float]:
        self._pipe.send(op)
        samples: list[float] = self._pipe.recv()
        return samples

    def finish(self) -> int:
        """End the process and return its peak memory in bytes."""
        self._pipe.send(None)
        peak: int = self._pipe.recv()
        self._process.join()
        return peak


def run(settings: Settings) -> Report:
    exponents = (3, 4) if settings.quick else (4, 5, 6, 7)
    sizes = [10**exponent for exponent in exponents]
    measured = {name: measure_layout(name, sizes, settings) for name in LAYOUTS}
    (local, _), (uniform, _) = measured.values()

    def growth(timings: list[Timing]) -> float:
        return timings[-1].minimum / timings[0].minimum

    def row(name: str, timings: list[Timing]) -> Row:
        details = {"arcs": sizes, "min_s_per_arc": [timing.minimum for timing in timings]}
        peer = f"per arc, 10^{exponents[0]}"
        return Row(name, timings[-1], peer, timings[0], costs_at_most(1.5), details)

    rows = [row(op, timings) for op, timings in local.items() if is_judged(op)]
    rows += [row(f"{op}; far", ts) for op, ts in uniform.items() if is_judged(op)]
    lines = []
    for op, timings in local.items():
        cells = [f"{1e9 * timing.minimum:.2f}" for timing in timings + uniform[op]]
        cells.insert(len(sizes), ratio_text(growth(timings)))
        lines.append([op, *cells, ratio_text(growth(uniform[op]))])

    powers = [f"10^{exponent}" for exponent in exponents]
    header = ["op", *powers, "ratio", *powers, "ratio"]
    title = (
        f"ns per arc (minimum); left: arcs reach {WINDOW} nodes ahead, as in lattices; "
        "right, and called far above: all later nodes"
    )
    memory = [
        [name, *(f"{peak / 2**20:.0f} MiB" for peak in layout_peaks)]
        for name, (_, layout_peaks) in measured.items()
    ]
    memory_title = "peak memory of the process that ran every op at that size"
    note = (
        "ten arcs per node, one to the next node and nine random, one label in fifty epsilon, ids "
        "in topological order; warm; time per arc at the largest size over the smallest"
    )
    return Report(rows, [(title, header, lines), (memory_title, ["arcs", *powers], memory)], [note])


def measure_layout(
    layout: str, sizes: list[int], settings: Settings
) -> tuple[dict[str, list[Timing]], list[int]]:
    """For every op the time per arc at each size, and the peak memory at each size."""
    rounds = 1 if settings.quick else 8
    show_progress(f"slope, {layout}: building graphs of up to {sizes[-1]} arcs")
    workers = [Worker(size, LAYOUTS[layout], settings) for size in sizes]
    ops = workers[0].ops
    samples: dict[str, list[list[float]]] = {op: [[] for _ in workers] for op in ops}
    # The rounds of an op are spread over the whole run, because the host may be busy for seconds.
    for _ in range(rounds):
        for op in ops:
            show_progress(f"slope, {layout}: {op}")
            for worker, collected in zip(workers, samples[op], strict=True):
                collected += worker.time(op)
    result = {
        op: [Timing.of(s).per(w.num_arcs) for w, s in zip(workers, samples[op], strict=True)]
        for op in ops
    }
    peaks = [worker.finish() for worker in workers]
    clear_progress()
    return result, peaks
