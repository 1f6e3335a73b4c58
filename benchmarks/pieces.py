"""Losses of word pieces: all decompositions at once, and n-grams of pieces, pruned and dense.

Times are for a whole step with the public losses: building graphs, the loss and the
gradients of emissions and transitions, one thread. The case needs PyTorch.
(Counting n-grams is timed in ``ngram``.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import arcgrad as ag

from .harness import Report, Row, Settings, Target, Timing, costs_at_most, faster_by, interleave

torch: ModuleType | None
try:
    import torch
except ImportError:
    torch = None
else:
    import arcgrad.torch as agt

# Seconds per example, one thread, measured on this kind of machine (2 cores, AMD EPYC with AVX2) at
# the same sizes; gtn is not run because it does not install on a current Python.
GTN = {
    "pieces, B = 1": 33.9e-3,
    "pieces, B = 8": 27.7e-3,
    "2000 bigrams": 107e-3,
    "20000 bigrams": 328e-3,
}
BLANK = 0


def run(settings: Settings) -> Report:
    if not torch:
        return Report([], notes=["torch is NOT INSTALLED: nothing is measured"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = marginal_rows(settings) + pruned_rows(settings) + dense_rows(settings)
    finally:
        torch.set_num_threads(threads)
    note = "gtn: constants per example, measured on this kind of machine with one thread"
    return Report(rows, notes=[f"torch {torch.__version__}; float32; {note}"])


def step(loss: Any, batch: int, length: int, num_labels: int, targets: Any) -> Callable[[], None]:
    """A training step without the model: the loss and all gradients."""
    assert torch
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, length, num_labels, generator=generator).log_softmax(-1)
    x.requires_grad_()

    def call() -> None:
        x.grad = None
        loss.zero_grad()
        loss(x, targets).backward()

    return call


def against_gtn(measure: str, ours: Timing, key: str, target: Target, settings: Settings) -> Row:
    if settings.quick:
        return Row(measure, ours)
    return Row(measure, ours, "gtn (constant)", Timing.constant(GTN[key]), target)


# Decompositions


def random_pieces(count: int, rng: np.random.Generator) -> list[str]:
    """Letters, and the most frequent strings of up to 5 letters in a random text."""
    letters = np.array(list("▁abcdefghijklmnopqrstuvwxyz"))
    weights = 1 / np.arange(1, len(letters) + 1)
    text = "".join(rng.choice(letters, 20_000, p=weights / weights.sum()))
    found = Counter(text[k : k + n] for n in (2, 3, 4, 5) for k in range(len(text) - n + 1))
    return [*letters, *(piece for piece, _ in found.most_common(count - len(letters)))]


def marginal_rows(settings: Settings) -> list[Row]:
    rng = np.random.default_rng(0)
    num_labels, length = settings.size(1000, 100), settings.size(100, 50)
    pieces = random_pieces(num_labels - 1, rng)
    lexicon = ag.lexicon.Lexicon(pieces, first_label=1)
    texts = ["".join(rng.choice(pieces, 15)) for _ in range(8)]
    loss = agt.TransducerLoss(
        pieces, lexicon, blank="optional", allow_repeats=False, normalize=False
    )
    batches = {"B = 1": 1, "B = 8": 8}
    tasks = {
        name: step(loss, batch, length, num_labels, texts[:batch])
        for name, batch in batches.items()
    }
    times = interleave("decompositions", tasks, settings)
    return [
        against_gtn(
            f"decompositions, 15 pieces, {name}, per example",
            times[name].per(batch),
            f"pieces, {name}",
            faster_by(15),
            settings,
        )
        for name, batch in batches.items()
    ]


# Transitions


def pruned_graph(num_labels: int, num_bigrams: int, rng: np.random.Generator) -> ag.Graph:
    """The back-off graph of all unigrams and some bigrams, with weights."""
    labels = ((label,) for label in range(num_labels))
    pairs = rng.choice(num_labels**2, num_bigrams, replace=False).tolist()
    bigrams = (divmod(pair, num_labels) for pair in pairs)
    counts = dict.fromkeys([*labels, *bigrams], 1)
    known = ag.ngram.Counts(counts, order=2, start=False, end=False)
    graph = ag.ngram.backoff_graph(known, backoff="epsilon")
    graph.set_weights(rng.normal(size=graph.num_arcs()) - 3)
    return graph


def transition_step(
    transitions: ag.Graph | int, batch: int, settings: Settings
) -> Callable[[], None]:
    """CTC with transitions, normalized, for targets of 15 pieces."""
    num_labels, length = settings.size(1000, 200), settings.size(100, 40)
    targets = np.random.default_rng(1).integers(1, num_labels, (batch, 15))
    loss = agt.TransducerLoss(
        num_labels - 1, transitions=transitions, blank="optional", allow_repeats=False
    )
    return step(loss, batch, length, num_labels, targets)


def pruned_rows(settings: Settings) -> list[Row]:
    rows = []
    batch = 8
    for num_bigrams in (2_000, 20_000):
        rng = np.random.default_rng(0)
        graph = pruned_graph(settings.size(1000, 200), num_bigrams, rng)
        name = f"{num_bigrams} bigrams"
        times = interleave(name, {name: transition_step(graph, batch, settings)}, settings)
        measure = f"CTC + {name}, B = {batch}, per example"
        ours = times[name].per(batch)
        rows.append(against_gtn(measure, ours, name, faster_by(30), settings))
    return rows


def dense_rows(settings: Settings) -> list[Row]:
    batch = settings.size(32, 4)
    graph = pruned_graph(settings.size(1000, 200), 20_000, np.random.default_rng(0))
    tasks = {
        "dense": transition_step(2, batch, settings),
        "pruned": transition_step(graph, batch, settings),
    }
    times = interleave("dense bigram", tasks, settings)
    measure = f"CTC + dense bigram, B = {batch}"
    return [Row(measure, times["dense"], "20000 bigrams", times["pruned"], costs_at_most(5))]
