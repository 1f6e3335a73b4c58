"""Composition of two random graphs, and of a text with a lexicon.

OpenFst gets its inputs sorted by label beforehand and trims its result (``connect=True``).
"""

from __future__ import annotations

import numpy as np
import pywrapfst as fst

import arcgrad as ag

from .graphs import Arrays, lexicon, random_graph, random_words, text_chain
from .harness import Report, Row, Settings, faster_by, interleave
from .peers import OPENFST, count_arcs, elsewhere, openfst


def run(settings: Settings) -> Report:
    num_nodes = settings.size(1_000, 200)
    rows = composition(
        "compose",
        random_graph(num_nodes, 10, 50, seed=0),
        random_graph(num_nodes, 10, 50, seed=1),
        4,
        settings,
    )
    rng = np.random.default_rng(0)
    words = random_words(settings.size(4_000, 200), rng)
    text = [letter for word in rng.integers(0, len(words), 60) for letter in words[word]]
    spelled, spelling = text_chain(text), lexicon(words)
    rows += composition("compose with a lexicon", spelled, spelling, 3, settings)
    notes = [
        f"compose: two graphs of {num_nodes} nodes, 10 arcs per node to uniformly random nodes, "
        "50 labels, one start, one accept node",
        f"compose with a lexicon: a chain of {len(text)} letters (60 words) and a loop of "
        f"{len(words)} words with {spelling.num_nodes} nodes, word out on the first arc",
    ]
    return Report(rows, notes=notes + [result_size(row) for row in rows if "nodes" in row.details])


def composition(
    measure: str, first: Arrays, second: Arrays, target: float, settings: Settings
) -> list[Row]:
    ours = first.graph(), second.graph()
    theirs = openfst(first, "log"), openfst(second, "log")
    theirs[0].arcsort("olabel")
    theirs[1].arcsort("ilabel")
    size = same_size(measure, ag.compose(*ours), fst.compose(*theirs, connect=True))
    times = interleave(
        measure,
        {
            OPENFST: lambda: fst.compose(*theirs, connect=True),
            "arcgrad": lambda: ag.compose(*ours),
        },
        settings,
    )
    rows = [Row(measure, times["arcgrad"], OPENFST, times[OPENFST], faster_by(target), size)]
    if not settings.quick:
        rows += elsewhere(measure, measure, times["arcgrad"])
    return rows


def same_size(measure: str, ours: ag.Graph, theirs: fst.MutableFst) -> dict[str, int]:
    """Check that OpenFst's result has as many nodes and arcs."""
    size = {"nodes": ours.num_nodes(), "arcs": ours.num_arcs()}
    expected = {"nodes": theirs.num_states(), "arcs": count_arcs(theirs)}
    if size != expected:
        raise AssertionError(f"{measure}: the result has {size}, but OpenFst's has {expected}")
    if size["nodes"] == 0:
        raise AssertionError(f"{measure}: the result is empty, so there is nothing to time")
    return size


def result_size(row: Row) -> str:
    nodes, arcs = row.details["nodes"], row.details["arcs"]
    return f"{row.measure}: {nodes} nodes and {arcs} arcs, as OpenFst"
