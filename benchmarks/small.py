"""Small graphs: calls per second of a program written for gtn, beside the ops of arcgrad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import arcgrad as ag
import arcgrad.gtn as gtn

from .harness import Report, Row, Settings, interleave

NUM_LABELS = 29
SIZES = (2, 5, 20, 100)
GTN = "arcgrad.gtn"


def run(settings: Settings) -> Report:
    rows, lines = [], []
    for num_nodes in SIZES:
        programs = {name: Program.make(module, num_nodes) for name, module in MODULES.items()}
        for what in ("forward", "forward + backward", "fresh emissions, gradient as array"):
            calls = {name: program.calls()[what] for name, program in programs.items()}
            times = interleave("small", calls, settings)
            measure = f"{num_nodes} nodes, {what}"
            rows.append(Row(measure, times["arcgrad"], GTN, times[GTN]))
            lines.append([measure, *(f"{1 / times[name].minimum:,.0f}" for name in MODULES)])
    loops = {f"{n} thread{'s' * (n > 1)}": layer(settings, n) for n in (1, 2)}
    times = interleave("small", loops, settings)
    rows += [Row(f"36 kernels through parallel_for, {n}", time) for n, time in times.items()]
    return Report(rows, [("calls per second", ["", *MODULES], lines)])


MODULES = {"arcgrad": ag, GTN: gtn}


def kernel(module: ModuleType, num_nodes: int) -> Any:
    """The alignments of some labels with optional blanks between them: 2 n + 1 nodes or fewer."""
    graph = module.Graph(False)
    for node in range(num_nodes):
        graph.add_node(node == 0, node >= num_nodes - 2)
    for node in range(num_nodes):
        label = 0 if node % 2 == 0 else 1 + node // 2 % (NUM_LABELS - 1)
        graph.add_arc(node, node, label)
        for before in range(max(0, node - 2 + (node % 2 == 0)), node):
            graph.add_arc(before, node, label)
    return graph


@dataclass
class Program:
    """Scores a graph against emissions, with the functions of one module."""

    module: ModuleType
    graph: Any
    emissions: Any
    values: np.ndarray[Any, np.dtype[np.float32]]

    @classmethod
    def make(cls, module: ModuleType, num_nodes: int) -> Program:
        shape = max(5, num_nodes // 2), NUM_LABELS
        values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        program = cls(module, kernel(module, num_nodes), None, values)
        program.emissions = program.fresh()
        return program

    def fresh(self) -> Any:
        emissions = self.module.linear_graph(*self.values.shape)
        emissions.calc_grad = True
        emissions.set_weights(self.values.ctypes.data if self.module is gtn else self.values)
        return emissions

    def score(self, emissions: Any) -> Any:
        return self.module.forward_score(self.module.intersect(self.graph, emissions))

    def fresh_gradient(self) -> Any:
        emissions = self.fresh()
        self.module.backward(self.score(emissions))
        return emissions.grad().weights_to_numpy()

    def calls(self) -> dict[str, Callable[[], Any]]:
        return {
            "forward": lambda: self.score(self.emissions),
            "forward + backward": lambda: self.module.backward(self.score(self.emissions)),
            "fresh emissions, gradient as array": self.fresh_gradient,
        }


def layer(settings: Settings, num_threads: int) -> Callable[[], None]:
    """A layer of 36 kernels on all windows of a batch, one example per call of parallel_for."""
    kernels = [kernel(gtn, 5) for _ in range(36)]
    shape = (4, settings.size(20, 2), 5, NUM_LABELS)
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    gradients = np.empty_like(values)

    def example(i: int) -> None:
        for window in range(shape[1]):
            emissions = gtn.linear_graph(5, NUM_LABELS)
            emissions.set_weights(values[i, window].ctypes.data)
            for graph in kernels:
                gtn.backward(gtn.forward_score(gtn.intersect(emissions, graph)))
            gradients[i, window] = emissions.grad().weights_to_numpy().reshape(5, -1)

    def run() -> None:
        ag.set_num_threads(num_threads)
        gtn.parallel_for(example, range(shape[0]))
        ag.set_num_threads(1)

    return run
