"""N-grams and pieces: counting, estimating, reading ARPA files, decompositions of labels."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

import arcgrad as ag
from arcgrad import lexicon, ngram

from .harness import Report, Row, Settings, interleave, takes_under

kenlm: ModuleType | None
try:
    import kenlm
except ImportError:
    kenlm = None

Tokens = npt.NDArray[np.int64]


def run(settings: Settings) -> Report:
    # Seconds per call: a few rounds are enough.
    few = replace(settings, quick=True)
    rows = counting(settings.size(1_000_000, 10_000), few)
    rows += models(settings.size(800_000, 10_000), few)
    rows += pieces(settings)
    return Report(rows)


def text(num_tokens: int) -> list[Tokens]:
    """Sequences of 20 tokens with Zipf's frequencies, as words have."""
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 20_001)
    tokens = rng.choice(len(weights), num_tokens, p=weights / weights.sum())
    return np.split(tokens, num_tokens // 20)


def counting(num_tokens: int, settings: Settings) -> list[Row]:
    arrays = text(num_tokens)
    lists = [array.tolist() for array in arrays]
    lines = [" ".join(map(str, tokens)) for tokens in lists]
    times = interleave(
        "ngram",
        {
            "arrays, order 2": lambda: ngram.count(arrays, 2),
            "arrays, order 3": lambda: ngram.count(arrays, 3),
            "lists, order 3": lambda: ngram.count(lists, 3),
            "text, order 3": lambda: ngram.count(lines, 3, tokenize=str.split),
            "arrays, order 5": lambda: ngram.count(arrays, 5),
        },
        settings,
    )
    targets = {"arrays, order 3": takes_under(2), "lists, order 3": takes_under(2)}
    return [
        Row(f"count {num_tokens:,} tokens: {name}", timing, target=targets.get(name))
        for name, timing in times.items()
    ]


def models(num_tokens: int, settings: Settings) -> list[Row]:
    counts = ngram.count(text(num_tokens), 3)
    model = ngram.estimate(counts)
    sequences = text(num_tokens)[: num_tokens // 100]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        ngram.save_arpa(model, path)
        times = interleave(
            "ngram",
            {
                "estimate": lambda: ngram.estimate(counts),
                "save_arpa": lambda: ngram.save_arpa(model, path),
                "load_arpa": lambda: ngram.load_arpa(path),
                "graph": model.graph,
                "score of 20 tokens": lambda: model.score(sequences[0]),
                f"perplexity of {20 * len(sequences):,} tokens": lambda: model.perplexity(
                    sequences
                ),
            },
            settings,
        )
        peer = None
        if kenlm:
            peer = interleave("ngram", {"kenlm": lambda: kenlm.Model(str(path))}, settings)["kenlm"]
    size = sum(model.sizes)
    rows = [Row(f"{name}: {size:,} n-grams", timing) for name, timing in times.items()]
    loading = rows[list(times).index("load_arpa")]
    loading.target = takes_under(5)
    if peer:
        loading.peer, loading.theirs = "kenlm", peer
    return rows


def pieces(settings: Settings) -> list[Row]:
    """Labels of 60 characters and 1000 pieces: letters, and the most frequent longer strings."""
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 28)
    letters = np.array(list("▁abcdefghijklmnopqrstuvwxyz"))
    labels = ["".join(rng.choice(letters, 60, p=weights / weights.sum())) for _ in range(100)]
    found = Counter(
        label[k : k + n] for label in labels for n in (2, 3, 4) for k in range(len(label) - n + 1)
    )
    longer = [piece for piece, _ in found.most_common(1000 - len(letters))]
    all_pieces = [*letters, *longer]
    prepared = lexicon.Lexicon(all_pieces)
    graph = lexicon.lexicon_graph(prepared)
    target = ag.chain_graph(prepared.spell(labels[0]))
    times = interleave(
        "pieces",
        {
            "decompositions of a label": lambda: lexicon.decompositions(prepared, labels[0]),
            "decompositions of 100 labels": lambda: lexicon.decompositions(prepared, labels),
            "lexicon of 1000 pieces": lambda: lexicon.Lexicon(all_pieces),
            "lexicon_graph": lambda: lexicon.lexicon_graph(prepared),
            "lexicon_graph, not shared": lambda: lexicon.lexicon_graph(prepared, shared=False),
        },
        settings,
    )
    composed = interleave(
        "pieces",
        {"by composition": lambda: ag.remove(ag.project_input(ag.compose(graph, target)))},
        settings,
    )["by composition"]
    first, *rest = [Row(name, timing) for name, timing in times.items()]
    first.peer, first.theirs, first.target = "composition", composed, takes_under(1e-3)
    return [first, *rest]
