"""Strings and rules: difference against OpenFst, a text normalizer against pynini."""

from __future__ import annotations

import random

import numpy as np
import pynini
import pywrapfst as fst

import arcgrad as ag

from .graphs import Arrays
from .harness import Report, Row, Settings, faster_by, interleave
from .peers import OPENFST, count_arcs, openfst

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ENDS = [" ", ".", ",", "!"]


def trie(words: list[str]) -> Arrays:
    """A deterministic acceptor of words, its arcs sorted by label."""
    children: dict[tuple[int, int], int] = {}
    accept = set()
    for word in words:
        node = 0
        for letter in word:
            node = children.setdefault((node, ord(letter) - ord("a")), len(children) + 1)
        accept.add(node)
    rows = sorted((node, label, child) for (node, label), child in children.items())
    src, label, dst = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    weight = np.zeros(len(rows), np.float32)
    return Arrays(len(rows) + 1, src, dst, label, label, weight, 0, sorted(accept))


def draw_words(rng: random.Random, count: int, length: int) -> list[str]:
    return ["".join(rng.choices(LETTERS, k=length)) for _ in range(count)]


def difference_row(settings: Settings) -> Row:
    rng = random.Random(1)
    count = 1000 if settings.quick else 100_000
    words = draw_words(rng, count, 8)
    first, second = trie(words), trie(words[::2])
    ours = [graph.graph(calc_grad=False) for graph in (first, second)]
    theirs = [openfst(graph, "standard") for graph in (first, second)]
    for graph in theirs:
        graph.arcsort("ilabel")
    result = ag.difference(*ours)
    assert result.num_arcs() == count_arcs(fst.difference(*theirs))
    measure = "difference"
    times = interleave(
        measure,
        {
            OPENFST: lambda: fst.difference(*theirs),
            "arcgrad": lambda: ag.difference(*ours),
        },
        settings,
    )
    size = {"nodes": result.num_nodes(), "arcs": result.num_arcs()}
    return Row(measure, times["arcgrad"], OPENFST, times[OPENFST], faster_by(3.0), size)


def draw_rules(rng: random.Random) -> list[tuple[dict[str, str], list[str], list[str]]]:
    """Rules as pairs, left and right contexts, in the order in which they are applied."""
    ones = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    tens = ["ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
    numbers = {
        str(10 * t + k): f"{tens[t - 1]} {ones[k - 1]}" for t in range(1, 10) for k in range(1, 10)
    }
    numbers |= {str(k): ones[k - 1] for k in range(1, 10)}
    short = {word[:4]: word for word in draw_words(rng, 40, 9)}
    return [
        (short, [" "], ENDS),
        ({"$": "dollars ", "%": " percent", "&": "and"}, [""], [""]),
        (numbers, [" "], [" ", *ENDS]),
        ({"  ": " "}, [""], [""]),
    ]


def normalizer_row(settings: Settings) -> Row:
    rng = random.Random(2)
    rules = draw_rules(rng)
    shorts = list(rules[0][0])
    sentences = [
        " "
        + " ".join(rng.choices([*shorts, "word", "42", "7", "$ 12", "5 %", "a & b"], k=12))
        + "."
        for _ in range(20)
    ]
    sigma = pynini.union(*(f"[{k}]" for k in range(1, 256))).closure().optimize()
    theirs, ours = [], []
    for pairs, left, right in rules:
        theirs.append(
            pynini.cdrewrite(
                pynini.string_map(list(pairs.items())),
                pynini.union(*map(pynini.escape, left)),
                pynini.union(*map(pynini.escape, right)),
                sigma,
            ).optimize()
        )
        ours.append(ag.text.rewrite(pairs, *map(ag.text.string_map, (left, right))))

    def normalize(sentence: str) -> str:
        result = sentence
        for rule in theirs:
            result = pynini.compose(result, rule)
        return pynini.shortestpath(result).project("output").rmepsilon().string()

    texts = [pynini.escape(sentence) for sentence in sentences]
    for sentence, text in zip(sentences, texts, strict=True):
        assert ag.text.apply(sentence, ours) == normalize(text)
    measure = "normalize 20 sentences"
    times = interleave(
        measure,
        {
            "pynini": lambda: [normalize(text) for text in texts],
            "arcgrad": lambda: [ag.text.apply(sentence, ours) for sentence in sentences],
        },
        settings,
    )
    return Row(measure, times["arcgrad"], "pynini", times["pynini"], faster_by(1.0))


def run(settings: Settings) -> Report:
    notes = [
        "difference: a trie of random words of 8 letters, and one of every other of them",
        "normalize: 12 words each, by 4 obligatory rules over bytes (40 abbreviations, numbers, "
        "signs, spaces), one after another; pynini's rules are optimized",
    ]
    return Report([difference_row(settings), normalizer_row(settings)], notes=notes)
