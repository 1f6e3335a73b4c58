"""A Hessian-vector product of ``forward_score`` on 1M arcs, against one gradient."""

from __future__ import annotations

import numpy as np

import arcgrad as ag

from .graphs import uniform_dag
from .harness import Report, Row, Settings, costs_at_most, interleave


def run(settings: Settings) -> Report:
    num_nodes = settings.size(100_000, 1_000)
    arrays = uniform_dag(num_nodes, 10 * num_nodes, reachable=True)
    graph = arrays.graph()
    vector = np.random.default_rng(1).standard_normal(arrays.num_arcs).astype(np.float32)
    score = ag.forward_score(graph)

    def gradient() -> None:
        graph.zero_grad()
        ag.backward(ag.forward_score(graph))

    times = interleave(
        "second_order",
        {
            "forward_score + backward": gradient,
            "forward_score + hvp": lambda: ag.hvp(ag.forward_score(graph), graph, vector),
            "hvp": lambda: ag.hvp(score, graph, vector),
        },
        settings,
    )
    yardstick = "forward_score + backward"
    rows = [
        Row(measure, times[measure], yardstick, times[yardstick], costs_at_most(6))
        for measure in ("hvp", "forward_score + hvp")
    ]
    return Report(rows, notes=[f"{num_nodes} nodes, {arrays.num_arcs} arcs"])
