"""Scores of a random acyclic graph of 100k nodes and 1M arcs.

OpenFst's ``shortestdistance`` runs in the log semiring on float32 ("log" arcs, from the start) and
``shortestpath`` in the tropical one ("standard" arcs).
"""

from __future__ import annotations

import math

import pywrapfst as fst

import arcgrad as ag

from .graphs import uniform_dag
from .harness import Report, Row, Settings, faster_by, interleave
from .peers import OPENFST, elsewhere, openfst, path_score


def run(settings: Settings) -> Report:
    num_nodes = settings.size(100_000, 1_000)
    rows = scores("", num_nodes, settings, reachable=True)
    rows += scores(", mostly unreachable", num_nodes, settings, reachable=False)
    note = (
        f"{num_nodes} nodes, {10 * num_nodes} arcs between uniformly random pairs u < v, ids in "
        "topological order, arcs sorted by source, standard normal weights;\nevery node reachable "
        "from the start, except in the rows that say otherwise; peer: shortestdistance (log, "
        "float32, reverse=False) and shortestpath"
    )
    return Report(rows, notes=[note])


def scores(suffix: str, num_nodes: int, settings: Settings, *, reachable: bool) -> list[Row]:
    """The three measures on one graph; only the reachable graph is judged."""
    arrays = uniform_dag(num_nodes, 10 * num_nodes, reachable=reachable)
    graph = arrays.graph()
    log, tropical = openfst(arrays, "log"), openfst(arrays, "standard")

    def score_and_gradient() -> None:
        graph.zero_grad()
        ag.backward(ag.forward_score(graph))

    agree(ag.forward_score(graph).item(), -float(fst.shortestdistance(log)[num_nodes - 1]))
    best = ag.viterbi_path(graph)
    agree(sum(best.weights_to_list()), path_score(fst.shortestpath(tropical)))

    times = interleave(
        f"forward{suffix}",
        {
            "shortestdistance": lambda: fst.shortestdistance(log),
            "shortestpath": lambda: fst.shortestpath(tropical),
            "forward_score": lambda: ag.forward_score(graph),
            "forward_score + backward": score_and_gradient,
            "viterbi_path": lambda: ag.viterbi_path(graph),
        },
        settings,
    )
    rows = []
    for measure, peer, target in (
        ("forward_score", "shortestdistance", 30),
        ("forward_score + backward", "shortestdistance", 20),
        ("viterbi_path", "shortestpath", 2),
    ):
        ours, theirs = times[measure], times[peer]
        judged = faster_by(target) if reachable else None
        rows.append(Row(measure + suffix, ours, f"{OPENFST} {peer}", theirs, judged))
        if reachable and not settings.quick:
            rows += elsewhere(measure, measure, ours)
    return rows


def agree(ours: float, theirs: float) -> None:
    """Check that both give the same answer."""
    if not math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-3):
        raise AssertionError(f"the scores differ: ours is {ours}, OpenFst's {theirs}")
