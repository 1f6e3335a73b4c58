"""Determinize, minimize, push and remove against OpenFst, and their time per arc as graphs grow.

OpenFst gets acceptors of codes where a transducer is determinized (``encode_labels=True``), which
are made beforehand. No graph records gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pywrapfst as fst

import arcgrad as ag

from .graphs import Arrays, Words, acceptor, lexicon, random_words
from .harness import Report, Row, Settings, costs_at_most, faster_by, interleave
from .peers import OPENFST, openfst


def word_list(num_words: int, length: int, rng: np.random.Generator) -> Arrays:
    """One path from node 0 to the last node per word of uniformly random letters."""
    label = rng.integers(0, 26, (num_words, length)).astype(np.int32)
    inner = 1 + np.arange(num_words * (length - 1), dtype=np.int32).reshape(num_words, -1)
    last = np.full((num_words, 1), inner.size + 1, np.int32)
    src = np.hstack([np.zeros_like(last), inner]).ravel()
    dst = np.hstack([inner, last]).ravel()
    weight = np.zeros(label.size, np.float32)
    end = int(last[0, 0])
    return Arrays(end + 1, src, dst, label.ravel(), label.ravel(), weight, 0, [end])


def lattice(num_arcs: int, num_labels: int, rng: np.random.Generator) -> Arrays:
    """Layers of 10 nodes; each node has one arc to every node of the next layer.

    With 200 labels, one node in five has two arcs with the same label, which lead to different
    nodes; with ``num_labels=0`` the labels of a node are all different.
    """
    width = 10
    layers = max(num_arcs // width**2, 1)
    src = 1 + np.repeat(np.arange(layers * width), width)
    dst = 1 + (1 + np.repeat(np.arange(layers), width**2)) * width + np.arange(len(src)) % width
    end = 1 + (layers + 1) * width
    ends = np.arange(width)
    src = np.concatenate([np.zeros(width, int), src, end - width + ends])
    dst = np.concatenate([1 + ends, dst, np.full(width, end)])
    label = rng.integers(0, num_labels, len(src)) if num_labels else dst % width
    weight = rng.standard_normal(len(src)).astype(np.float32)
    columns = (column.astype(np.int32) for column in (src, dst, label, label))
    return Arrays(end + 1, *columns, weight, 0, [end])


def bigram(num_words: int, num_next: int, rng: np.random.Generator) -> Arrays:
    """One node per word after the start; ``num_next`` uniformly random words follow each."""
    src = np.repeat(np.arange(num_words + 1), num_next)
    label = rng.integers(0, num_words, len(src))
    weight = rng.standard_normal(len(src)).astype(np.float32)
    columns = (column.astype(np.int32) for column in (src, 1 + label, label, label))
    return Arrays(num_words + 1, *columns, weight, 0, range(1, num_words + 1))


def composed_lexicon(words: Words, num_next: int, rng: np.random.Generator) -> ag.Graph:
    """Spelled words, whose last arc emits the word, composed with a bigram of them."""
    spelled = lexicon([word[::-1] for word in words])
    backwards = replace(spelled, src=spelled.dst, dst=spelled.src)
    return ag.compose(backwards.graph(), bigram(len(words), num_next, rng).graph())


def with_epsilons(num_arcs: int) -> Arrays:
    """A DAG with two arcs per node to one of the next 1,000 nodes; every fifth arc is epsilon."""
    rng = np.random.default_rng(0)
    num_nodes = num_arcs // 2 + 1
    src = np.repeat(np.arange(num_nodes - 1), 2)
    dst = src + 1 + rng.integers(0, np.minimum(num_nodes - 1 - src, 1_000))
    dst[::2] = src[::2] + 1
    arrays = acceptor(num_nodes, src, dst, 50, rng)
    label = np.where(arrays.ilabel < 10, np.int32(ag.epsilon), arrays.ilabel)
    return replace(arrays, ilabel=label, olabel=label)


def arrays_of(graph: ag.Graph) -> Arrays:
    src, dst, ilabel, olabel, weight = graph.arcs()
    flat: npt.NDArray[np.float32] = np.asarray(weight, np.float32).ravel()
    (start,) = graph.start().tolist()
    return Arrays(graph.num_nodes(), src, dst, ilabel, olabel, flat, start, graph.accept().tolist())


def encoded(graph: fst.VectorFst) -> fst.VectorFst:
    return graph.encode(fst.EncodeMapper(graph.arc_type(), encode_labels=True))


def minimized(graph: fst.Fst) -> fst.MutableFst:
    return fst.determinize(graph).minimize()


def removed(graph: fst.VectorFst) -> fst.VectorFst:
    return graph.copy().rmepsilon()


def run(settings: Settings) -> Report:
    rng = np.random.default_rng(0)
    words = word_list(settings.size(5_000, 100), 20, rng)
    large = lattice(settings.size(1_000_000, 10_000), 200, rng)
    some = random_words(settings.size(2_000, 50), rng)
    spelled = arrays_of(composed_lexicon(some, 20, rng))
    silent = with_epsilons(settings.size(100_000, 1_000))

    Call = Callable[[ag.Graph], ag.Graph]
    Peer = Callable[[fst.VectorFst], fst.Fst]
    cases: list[tuple[str, Arrays, str, Call, Peer, float]] = []
    for semiring, arc_type in (("tropical", "standard"), ("log", "log")):
        determinize = partial(ag.determinize, semiring=semiring)
        push = partial(ag.push, semiring=semiring)
        remove = partial(ag.remove, semiring=semiring)
        if semiring == "tropical":  # OpenFst minimizes no other
            cases += [
                (
                    "determinize + minimize: words",
                    words,
                    arc_type,
                    lambda g, determinize=determinize: ag.minimize(determinize(g)),
                    minimized,
                    2,
                )
            ]
        cases += [
            (f"determinize: lattice, {semiring}", large, arc_type, determinize, fst.determinize, 2),
            (
                f"determinize: lexicon, {semiring}",
                spelled,
                arc_type,
                determinize,
                fst.determinize,
                2,
            ),
            (
                f"push: lattice, {semiring}",
                large,
                arc_type,
                push,
                partial(fst.push, push_weights=True),
                3,
            ),
            (f"remove: 20 % epsilon, {semiring}", silent, arc_type, remove, removed, 4),
        ]
    rows = []
    for measure, arrays, arc_type, call, peer, target in cases:
        ours, theirs = arrays.graph(calc_grad=False), openfst(arrays, arc_type)
        if "lexicon" in measure:
            theirs = encoded(theirs)
        if not measure.startswith("remove"):
            check(measure, call(ours), peer(theirs))
        times = interleave(
            measure, {OPENFST: partial(peer, theirs), "arcgrad": partial(call, ours)}, settings
        )
        rows.append(Row(measure, times["arcgrad"], OPENFST, times[OPENFST], faster_by(target)))
        del ours, theirs
    notes = [
        f"words: {words.num_arcs} arcs; lattice: {large.num_arcs} arcs, 200 labels; "
        f"lexicon composed with a bigram: {spelled.num_arcs} arcs; remove: {silent.num_arcs} arcs"
    ]
    return Report(rows + growth(settings, rng), notes=notes)


def check(measure: str, ours: ag.Graph, theirs: fst.Fst) -> None:
    """OpenFst's result has the same number of arcs, but for those that rounding separates."""
    count = sum(theirs.num_arcs(node) for node in theirs.states())
    if not 0.9 < (1 + ours.num_arcs()) / (1 + count) < 1.1:
        raise AssertionError(f"{measure}: {ours.num_arcs()} arcs, but OpenFst's has {count}")


def growth(settings: Settings, rng: np.random.Generator) -> list[Row]:
    """Time per arc from 10^4 to 10^7 arcs."""
    sizes = [10_000, 100_000] if settings.quick else [10_000, 100_000, 1_000_000, 10_000_000]
    calls: dict[str, Callable[[ag.Graph], ag.Graph]] = {
        "determinize": partial(ag.determinize, semiring="tropical", max_nodes=100_000_000),
        "minimize": ag.minimize,
        "push": ag.push,
    }
    tasks = {}
    for size in sizes:
        graph = lattice(size, 0, rng).graph(calc_grad=False)
        for name, call in calls.items():
            tasks[name, size] = partial(call, graph)
        silent = with_epsilons(size).graph(calc_grad=False)
        tasks["remove", size] = partial(ag.remove, silent)
    timings = interleave(
        "growth", {f"{name} {size}": task for (name, size), task in tasks.items()}, settings
    )
    rows = []
    for name in [*calls, "remove"]:
        least = timings[f"{name} {sizes[0]}"].per(sizes[0])
        for size in sizes[1:]:
            timing = timings[f"{name} {size}"].per(size)
            measure = f"{name}: an arc of {size:.0e}"
            rows.append(Row(measure, timing, f"of {sizes[0]:.0e}", least, costs_at_most(3.0)))
    return rows
