"""Time per item as graphs grow: union of many small graphs, ``isomorphic``, and lexicons.

The yardstick of the union reads the weight of each of its graphs once: these lie in memory of their
own, so beyond the caches an item costs the latency of the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import arcgrad as ag
from arcgrad import _core

from .graphs import Words, random_words
from .harness import Report, Row, Settings, Timing, costs_at_most, interleave

TEXT = 1_000
Case = tuple[Callable[[], object], int]
"""A call, and the number of its items."""


def run(settings: Settings) -> Report:
    cases: dict[str, tuple[Callable[[int], Case], tuple[int, ...], bool]] = {
        "union of n one-arc graphs": (union, (10**3, 10**4, 10**5), False),
        "reading n one-arc graphs": (reading, (10**3, 10**4, 10**5), False),
        "isomorphic, n arcs in random order": (isomorphic, (10**3, 10**4, 10**5), False),
        "compose with a loop of n words": (lexicon, (10**3, 10**4, 10**5), True),
    }
    few = replace(settings, quick=True)  # rounds; the largest call takes seconds
    rows, lines = [], []
    for name, (make, sizes, is_judged) in cases.items():
        timings = []
        for size in (size // 100 for size in sizes) if settings.quick else sizes:
            call, items = make(size)
            timings.append(interleave(name, {"": call}, few)[""].per(items))
        rows += growth_rows(name, timings, is_judged)
        lines.append([name, *(f"{1e9 * timing.minimum:.0f}" for timing in timings)])
    header = ["ns per item", "10^3", "10^4", "10^5"]
    note = "an item is a graph, an arc of one of the two graphs, or a pair of the search"
    return Report(rows, [("minimum", header, lines)], [note])


def growth_rows(name: str, timings: list[Timing], is_judged: bool) -> list[Row]:
    target = costs_at_most(1.3) if is_judged else None
    return [
        Row(f"{name}: decade {i + 1}", timings[i + 1], "decade before", timings[i], target)
        for i in range(len(timings) - 1)
    ]


def one_arc_graphs(count: int) -> list[ag.Graph]:
    return [ag.Graph.from_arrays([0], [1], [0], start=[0], accept=[1]) for _ in range(count)]


def union(count: int) -> Case:
    return partial(ag.union, one_arc_graphs(count)), count


def reading(count: int) -> Case:
    return partial(_core.read_weights, one_arc_graphs(count), False), count


def isomorphic(num_arcs: int) -> Case:
    rng = np.random.default_rng(0)
    num_nodes = num_arcs // 4
    src = np.sort(rng.integers(0, num_nodes - 1, num_arcs))
    dst = src + 1 + rng.integers(0, 10, num_arcs) % (num_nodes - 1 - src)
    labels, weights = rng.integers(0, 50, num_arcs), rng.standard_normal(num_arcs)
    nodes, arcs = rng.permutation(num_nodes), rng.permutation(num_arcs)
    ends: dict[str, Any] = {"start": [0], "accept": [num_nodes - 1], "num_nodes": num_nodes}
    graph = ag.Graph.from_arrays(src, dst, labels, weight=weights, **ends)
    ends |= {name: [int(nodes[ends[name][0]])] for name in ("start", "accept")}
    src, dst, labels = (column[arcs] for column in (nodes[src], nodes[dst], labels))
    other = ag.Graph.from_arrays(src, dst, labels, weight=weights[arcs], **ends)
    assert ag.isomorphic(graph, other)
    return partial(ag.isomorphic, graph, other), num_arcs


def lexicon(num_words: int) -> Case:
    """A text of 1000 letters composed with the closure of a union of words."""
    rng = np.random.default_rng(0)
    words: Words = random_words(num_words, rng)
    loop = ag.closure(ag.union([word_graph(i, word) for i, word in enumerate(words)]))
    text = [letter for i in rng.integers(0, num_words, TEXT) for letter in words[i]][:TEXT]
    steps = np.arange(TEXT)
    chain = ag.Graph.from_arrays(steps, steps + 1, text, start=[0], accept=[TEXT])
    return partial(ag.compose, chain, loop), num_pairs(chain, loop)


def word_graph(number: int, word: tuple[int, ...]) -> ag.Graph:
    steps = np.arange(len(word))
    olabels = np.where(steps == 0, number, ag.epsilon)
    return ag.Graph.from_arrays(steps, steps + 1, word, olabels, start=[0], accept=[len(word)])


def num_pairs(first: ag.Graph, second: ag.Graph) -> int:
    """The arcs that the search of a composition reaches: its least ``max_arcs``, to a percent."""
    low, high = 0, 1
    while not is_enough(first, second, high):
        low, high = high, 2 * high
    while high - low > high // 100 + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(first, second, middle) else (middle, high)
    return high


def is_enough(first: ag.Graph, second: ag.Graph, max_arcs: int) -> bool:
    try:
        ag.compose(first, second, max_arcs=max_arcs)
    except ValueError:
        return False
    return True
