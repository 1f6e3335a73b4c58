"""Failure arcs against epsilon arcs as the back-off of n-gram graphs: compositions and scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import arcgrad as ag

from .harness import Report, Row, Settings, Target, costs_at_most, interleave
from .ngram import text

EPSILON = "epsilon arcs"


def run(settings: Settings) -> Report:
    rows, notes = [], []
    for name, num_tokens, thresholds, limit in (
        ("letters, order 2", 28, [0, 0], costs_at_most(1.3)),
        ("letters, order 3", 28, [0, 0, 1], None),
        ("1000 pieces, order 2", 1000, [0, 1], None),
        ("1000 pieces, order 3", 1000, [0, 1, 2], None),
    ):
        counts = zipf_counts(num_tokens, thresholds, settings)
        graphs = {
            kind: ag.ngram.backoff_graph(counts, backoff=option)
            for kind, option in ((EPSILON, "epsilon"), ("failure arcs", "failure"))
        }
        rng = np.random.default_rng(0)
        weights = rng.normal(size=graphs[EPSILON].num_arcs()) - 3
        for graph in graphs.values():
            graph.set_weights(weights)
        notes.append(f"{name}: {graph.num_nodes()} nodes, {graph.num_arcs()} arcs")
        lattice = random_lattice(100, 5, num_tokens, rng)
        chain = ag.chain_graph(rng.integers(0, num_tokens, 500).tolist())
        frames = ag.linear_graphs(rng.normal(size=(8, 50, num_tokens)).astype(np.float32))
        rows += [
            compare(
                f"compose a chain, {name}",
                {kind: composed(chain, graph) for kind, graph in graphs.items()},
                costs_at_most(1.3),
                settings,
            ),
            compare(
                f"compose a lattice, {name}",
                {kind: composed(lattice, graph) for kind, graph in graphs.items()},
                None,
                settings,
            ),
            compare(
                f"score and gradient, {name}",
                {kind: scored(graph, frames) for kind, graph in graphs.items()},
                limit,
                settings,
            ),
        ]
    notes.append(
        "chain: 500 labels; lattice: 100 steps of 5 labels; scores: 8 examples of 50 frames"
    )
    return Report(rows, notes=notes)


def zipf_counts(num_tokens: int, thresholds: list[int], settings: Settings) -> ag.ngram.Counts:
    """Counts of a text whose next token depends on the one before."""
    rng = np.random.default_rng(1)
    followers = np.stack([rng.permutation(num_tokens) for _ in range(num_tokens)])
    tokens, sequences = 0, []
    for sequence in text(settings.size(200_000, 4_000)):
        row = []
        for rank in np.minimum(sequence, num_tokens - 1).tolist():
            tokens = int(followers[tokens, rank])
            row.append(tokens)
        sequences.append(row)
    counts = ag.ngram.count(sequences, len(thresholds), num_tokens=num_tokens)
    return counts.prune(thresholds)


def random_lattice(steps: int, width: int, num_tokens: int, rng: np.random.Generator) -> ag.Graph:
    src = np.repeat(np.arange(steps), width)
    return ag.Graph.from_arrays(
        src, src + 1, rng.integers(0, num_tokens, len(src)), start=[0], accept=[steps]
    )


def composed(lattice: ag.Graph, graph: ag.Graph) -> Callable[[], object]:
    return lambda: ag.intersect(lattice, graph)


def scored(graph: ag.Graph, frames: list[ag.Graph]) -> Callable[[], object]:
    return lambda: ag.backward(ag.forward_score(ag.intersect([graph], frames)))


def compare(
    measure: str,
    tasks: dict[str, Callable[[], object]],
    target: Target | None,
    settings: Settings,
) -> Row:
    times = interleave(measure, tasks, settings)
    return Row(measure, times["failure arcs"], EPSILON, times[EPSILON], target)
