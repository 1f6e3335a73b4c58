"""Pruning and best paths of a large acyclic graph, as after a first pass of decoding."""

from __future__ import annotations

import numpy as np
import pywrapfst as fst

import arcgrad as ag

from .forward import agree
from .graphs import layered_dag
from .harness import Report, Row, Settings, faster_by, interleave
from .peers import OPENFST, count_arcs, openfst

NUM_PATHS = 10
THRESHOLDS = {"few arcs": 5.0, "most arcs": 40.0}


def run(settings: Settings) -> Report:
    num_arcs = settings.size(1_000_000, 10_000)
    arrays = layered_dag(num_arcs, None)
    graph, theirs = arrays.graph(), openfst(arrays, "standard")
    kept = {}
    for name, threshold in THRESHOLDS.items():
        ours, other = ag.prune(graph, threshold), fst.prune(theirs, weight=threshold)
        kept[name] = ours.num_arcs()
        theirs_kept = count_arcs(other)
        # OpenFst adds in float32, and so decides differently about a few arcs at the threshold.
        if abs(kept[name] - theirs_kept) > 0.02 * theirs_kept:
            raise AssertionError(f"prune keeps {kept[name]} arcs, but OpenFst {theirs_kept}")
    found = [ag.viterbi_score(path).item() for path in ag.best_paths(graph, NUM_PATHS)]
    several = fst.shortestpath(theirs, nshortest=NUM_PATHS)
    agree(float(np.mean(found)), -mean_cost(several))
    tasks = {}
    for name, threshold in THRESHOLDS.items():
        tasks[f"prune, {name} kept"] = lambda t=threshold: ag.prune(graph, t)
        tasks[f"{OPENFST} prune, {name} kept"] = lambda t=threshold: fst.prune(theirs, weight=t)
    times = interleave(
        "lattices",
        {
            **tasks,
            "best_paths": lambda: ag.best_paths(graph, NUM_PATHS),
            "shortestpath": lambda: fst.shortestpath(theirs, nshortest=NUM_PATHS),
        },
        settings,
    )
    rows = [
        Row(
            f"prune, {name} kept",
            times[f"prune, {name} kept"],
            f"{OPENFST} prune",
            times[f"{OPENFST} prune, {name} kept"],
            faster_by(3),
            {"arcs": kept[name]},
        )
        for name in THRESHOLDS
    ]
    rows.append(
        Row(
            f"best_paths({NUM_PATHS})",
            times["best_paths"],
            f"{OPENFST} shortestpath",
            times["shortestpath"],
            faster_by(2),
        )
    )
    note = (
        f"{arrays.num_nodes} nodes, {arrays.num_arcs} arcs, ten from each node to the next and to "
        f"random later nodes, standard normal weights; pruning keeps {list(kept.values())} arcs"
    )
    return Report(rows, notes=[note])


def mean_cost(paths: fst.Fst) -> float:
    """The mean cost of the paths of an acyclic graph of distinct paths."""
    totals, stack = [], [(paths.start(), 0.0)]
    while stack:
        node, cost = stack.pop()
        if float(paths.final(node)) < np.inf:
            totals.append(cost + float(paths.final(node)))
        stack += [(arc.nextstate, cost + float(arc.weight)) for arc in paths.arcs(node)]
    return sum(totals) / len(totals)
