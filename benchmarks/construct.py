"""Building a graph of 1M arcs from NumPy arrays, and the cost of the smallest calls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

import arcgrad as ag

from .graphs import Arrays, uniform_dag
from .harness import Report, Row, Settings, interleave, takes_under
from .peers import OPENFST, elsewhere, openfst


def run(settings: Settings) -> Report:
    return Report(building(settings) + smallest_calls(settings))


def building(settings: Settings) -> list[Row]:
    num_nodes = settings.size(100_000, 1_000)
    arrays = uniform_dag(num_nodes, 10 * num_nodes, reachable=True)
    wide = widened(arrays)
    warm = arrays.graph()
    times = interleave(
        "construct",
        {
            "from_arrays": arrays.graph,
            "from_arrays, int64": wide.graph,
            "cold: from_arrays + forward_score": lambda: ag.forward_score(arrays.graph()),
            "warm: forward_score": lambda: ag.forward_score(warm),
        },
        settings,
    )
    # Seconds per call: a few rounds of it are enough.
    few = replace(settings, quick=True)
    peer = interleave("construct", {OPENFST: lambda: openfst(arrays, "log")}, few)
    built = times.pop("from_arrays")
    rows = [Row("from_arrays", built, OPENFST, peer[OPENFST], takes_under(15e-3))]
    if not settings.quick:
        rows += elsewhere("from_arrays", "from_arrays", built)
    return rows + [Row(measure, timing) for measure, timing in times.items()]


def widened(arrays: Arrays) -> Arrays:
    """The same graph as NumPy makes it without being told a type."""
    columns = {name: getattr(arrays, name) for name in ("src", "dst", "ilabel", "olabel")}
    return replace(arrays, **{name: c.astype(np.int64) for name, c in columns.items()})


def smallest_calls(settings: Settings) -> list[Row]:
    calls = {}
    for calc_grad, suffix in ((True, ""), (False, ", no gradient")):
        scalar = ag.scalar_graph(1.0, calc_grad)
        other = ag.scalar_graph(2.0, calc_grad)
        pair = ag.Graph(calc_grad)
        pair.add_node(start=True)
        pair.add_node(accept=True)
        pair.add_arc(0, 1, 0)
        pair.add_arc(0, 1, 1)
        calls[f"negate of a scalar{suffix}"] = partial(ag.negate, scalar)
        calls[f"add of two scalars{suffix}"] = partial(ag.add, scalar, other)
        calls[f"forward_score of two arcs{suffix}"] = partial(ag.forward_score, pair)
    times = interleave("smallest calls", calls, settings)
    rows = [Row(measure, timing, target=takes_under(2e-6)) for measure, timing in times.items()]
    if not settings.quick:
        smallest = min(rows, key=lambda row: row.ours.minimum)
        rows += elsewhere("smallest op", smallest.measure, smallest.ours)
    return rows
