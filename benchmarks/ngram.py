"""Counting n-grams, estimating models and reading them from ARPA files."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

from arcgrad import ngram

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
    return Report(rows)


def text(num_tokens: int) -> list[Tokens]:
    """Sequences of 20 tokens whose frequencies fall as those of words do."""
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
