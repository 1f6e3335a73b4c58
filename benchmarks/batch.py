"""Score and gradient of a list of 32 graphs with one thread and with two."""

from __future__ import annotations

from dataclasses import replace

import arcgrad as ag

from .graphs import layered_dag
from .harness import Report, Row, Settings, Task, interleave


def run(settings: Settings) -> Report:
    num_arcs = settings.size(100_000, 1_000)
    graphs = [layered_dag(num_arcs, window=1_000, seed=seed).graph() for seed in range(32)]

    def with_threads(count: int) -> Task:
        def gradients(_: None) -> None:
            ag.backward(ag.forward_score(graphs))

        def reset() -> None:
            ag.set_num_threads(count)
            for graph in graphs:
                graph.zero_grad()

        return Task(gradients, reset)

    wall = replace(settings, cpu=False)  # processor time does not shrink with more threads
    threads_before = ag.get_num_threads()
    try:
        times = interleave("batch", {"one": with_threads(1), "two": with_threads(2)}, wall)
    finally:
        ag.set_num_threads(threads_before)
    row = Row("forward_score + backward, 2 threads", times["two"], "1 thread", times["one"])
    return Report([row], notes=[f"32 graphs of {num_arcs} arcs each; no target"])
