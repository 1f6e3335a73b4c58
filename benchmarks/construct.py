"""Building a graph of 1M arcs from arrays, alignments of targets, and the smallest calls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

import arcgrad as ag
from arcgrad.tokens import Tokens, alignment_graph, ctc_graph

from .graphs import Arrays, uniform_dag
from .harness import Report, Row, Settings, interleave, takes_under
from .peers import OPENFST, elsewhere, openfst


def run(settings: Settings) -> Report:
    return Report(building(settings) + alignments(settings) + smallest_calls(settings))


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
    """The same graph from arrays in the default types of NumPy."""
    columns = {name: getattr(arrays, name) for name in ("src", "dst", "ilabel", "olabel")}
    return replace(arrays, **{name: c.astype(np.int64) for name, c in columns.items()})


def alignments(settings: Settings) -> list[Row]:
    """The alignment graphs that a loss builds for every batch."""
    count = settings.size(1000, 10)
    rng = np.random.default_rng(0)
    target = rng.integers(1, 30, 40).tolist()
    targets = rng.integers(1, 30, (count, 50))
    frames = rng.integers(0, 30, (32, settings.size(1000, 10)))
    ctc, limited = Tokens.ctc(30), Tokens.limited(30, 2)
    lattice = pieces(rng, length=100, longest=4)
    limits = {
        "ctc_graph of 40 labels": (partial(ctc_graph, target), 3e-6),
        f"ctc_graph of {count} x 50 labels": (partial(ctc_graph, targets), 5e-3),
        f"ctc_graph of {count} lists of 50": (partial(ctc_graph, targets.tolist()), 5e-3),
        f"duration-limited, {count} x 50": (partial(alignment_graph, limited, targets), 5e-3),
        "lattice of 100 letters": (partial(alignment_graph, ctc, lattice), 50e-6),
        "Tokens.graph of 1000 labels": (lambda: Tokens.ctc(1000).graph(), 1e-3),
        "collapse of 32 x 1000 frames": (partial(ctc.collapse, frames), 1e-3),
    }
    times = interleave("alignments", {name: call for name, (call, _) in limits.items()}, settings)
    return [Row(name, times[name], target=takes_under(limits[name][1])) for name in limits]


def pieces(rng: np.random.Generator, length: int, longest: int) -> ag.Graph:
    """Decompositions of a text; pieces are all letters and most of the longer strings."""
    spans = [
        (begin, begin + size)
        for begin in range(length)
        for size in range(1, longest + 1)
        if begin + size <= length and (size == 1 or rng.random() < 0.6)
    ]
    src, dst = zip(*spans, strict=True)
    labels = rng.integers(1, 30, len(spans))
    return ag.Graph.from_arrays(src, dst, labels, start=[0], accept=[length], num_nodes=length + 1)


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
