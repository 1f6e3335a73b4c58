"""The random graphs of the cases, as arrays, so that every peer gets the same input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

import arcgrad as ag

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Arrays:
    """A graph with one start node: node ids, labels (-1 is epsilon) and float32 log weights."""

    num_nodes: int
    src: Ints
    dst: Ints
    ilabel: Ints
    olabel: Ints
    weight: npt.NDArray[np.float32]
    start: int
    accept: Sequence[int]

    @property
    def num_arcs(self) -> int:
        return len(self.src)

    def graph(self, calc_grad: bool = True) -> ag.Graph:
        return ag.Graph.from_arrays(
            self.src,
            self.dst,
            self.ilabel,
            self.olabel,
            self.weight,
            start=[self.start],
            accept=list(self.accept),
            num_nodes=self.num_nodes,
            calc_grad=calc_grad,
        )


def acceptor(
    num_nodes: int,
    src: npt.NDArray[np.integer],
    dst: npt.NDArray[np.integer],
    num_labels: int,
    rng: np.random.Generator,
) -> Arrays:
    """Arcs sorted by source, uniform labels, standard normal weights; node 0 to the last node."""
    order = np.argsort(src, kind="stable")
    label = rng.integers(0, num_labels, len(src)).astype(np.int32)
    weight = rng.standard_normal(len(src)).astype(np.float32)
    sources, targets = src[order].astype(np.int32), dst[order].astype(np.int32)
    return Arrays(num_nodes, sources, targets, label, label, weight, 0, [num_nodes - 1])


def uniform_dag(num_nodes: int, num_arcs: int, *, reachable: bool, seed: int = 0) -> Arrays:
    """Arcs join uniformly random pairs of distinct nodes, from the smaller id to the larger.

    With ``reachable``, node 1, 2, ... each get one of the arcs from a uniformly random earlier
    node, so that a path leads from the start to every node. Without it most arcs cannot be reached
    (81% of them for 100k nodes and 1M arcs), and a search from the start never visits them.
    """
    rng = np.random.default_rng(seed)
    one = rng.integers(0, num_nodes, num_arcs)
    other = rng.integers(0, num_nodes - 1, num_arcs)
    other += other >= one
    src, dst = np.minimum(one, other), np.maximum(one, other)
    if reachable:
        dst[: num_nodes - 1] = np.arange(1, num_nodes)
        src[: num_nodes - 1] = rng.integers(0, dst[: num_nodes - 1])
    return acceptor(num_nodes, src, dst, 50, rng)


def layered_dag(num_arcs: int, window: int | None, seed: int = 0) -> Arrays:
    """Ten arcs leave each node but the last, and one arc in fifty is epsilon.

    One of the ten goes to the next node, so every node lies on a path; nine go to uniformly random
    nodes among the next ``window`` nodes, or among all later nodes if it is None.
    """
    rng = np.random.default_rng(seed)
    num_nodes = num_arcs // 10 + 1
    src = np.repeat(np.arange(num_nodes - 1), 10)
    later = num_nodes - 1 - src
    reach = later if window is None else np.minimum(later, window)
    dst = src + 1 + rng.integers(0, reach)
    dst[::10] = src[::10] + 1
    arrays = acceptor(num_nodes, src, dst, 50, rng)
    label = np.where(arrays.ilabel == 49, np.int32(ag.epsilon), arrays.ilabel)
    return replace(arrays, ilabel=label, olabel=label)


def random_graph(num_nodes: int, arcs_per_node: int, num_labels: int, seed: int) -> Arrays:
    """Each node has ``arcs_per_node`` arcs to uniformly random nodes, with uniform labels."""
    rng = np.random.default_rng(seed)
    src = np.repeat(np.arange(num_nodes), arcs_per_node)
    dst = rng.integers(0, num_nodes, len(src))
    return acceptor(num_nodes, src, dst, num_labels, rng)


Words = list[tuple[int, ...]]


def random_words(num_words: int, rng: np.random.Generator) -> Words:
    """Distinct words of 2 to 10 uniformly random letters out of 26."""
    words: dict[tuple[int, ...], None] = {}
    while len(words) < num_words:
        words[tuple(rng.integers(0, 26, rng.integers(2, 11)).tolist())] = None
    return list(words)


def lexicon(words: Words) -> Arrays:
    """A lexicon: per word a loop through node 0 that reads letters; its first arc emits the word.

    Words have no common arcs, so node 0 has as many arcs as there are words.
    """
    src: list[int] = []
    dst: list[int] = []
    ilabel: list[int] = []
    olabel: list[int] = []
    num_nodes = 1
    for word_id, word in enumerate(words):
        inner = range(num_nodes, num_nodes + len(word) - 1)
        num_nodes += len(inner)
        src += [0, *inner]
        dst += [*inner, 0]
        ilabel += word
        olabel += [word_id] + [-1] * len(inner)
    arcs = np.array([src, dst, ilabel, olabel], dtype=np.int32)
    weight = np.zeros(len(src), dtype=np.float32)
    return Arrays(num_nodes, arcs[0], arcs[1], arcs[2], arcs[3], weight, 0, [0])


def lexicon_tree(words: Words) -> Arrays:
    """A lexicon: a tree of letters from node 0, each of which may repeat, and epsilon arcs back.

    The arc from the end of a word to node 0 emits the word and has the weight -2.
    """
    child: dict[tuple[int, int], int] = {}
    arcs: list[tuple[int, int, int, int, float]] = []
    for word_id, word in enumerate(words):
        node = 0
        for letter in word:
            if (node, letter) not in child:
                child[node, letter] = len(child) + 1
                arcs.append((node, len(child), letter, ag.epsilon, 0.0))
                arcs.append((len(child), len(child), letter, ag.epsilon, 0.0))
            node = child[node, letter]
        arcs.append((node, 0, ag.epsilon, word_id, -2.0))
    src, dst, ilabel, olabel = (np.array([arc[k] for arc in arcs], np.int32) for k in range(4))
    weight = np.array([arc[4] for arc in arcs], np.float32)
    return Arrays(len(child) + 1, src, dst, ilabel, olabel, weight, 0, [0])


def text_chain(letters: Sequence[int]) -> Arrays:
    """One path that spells ``letters``."""
    src = np.arange(len(letters), dtype=np.int32)
    label = np.array(letters, dtype=np.int32)
    weight = np.zeros(len(letters), dtype=np.float32)
    return Arrays(len(letters) + 1, src, src + 1, label, label, weight, 0, [len(letters)])
