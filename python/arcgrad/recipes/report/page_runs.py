"""The runs of a page: their names, data and errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arcgrad.recipes.data import Dataset, Split, load_data
from arcgrad.recipes.experiments import Experiment
from arcgrad.recipes.inference import (
    Comparison,
    compare,
    count_decompositions,
    dataset_emissions,
    evaluate_recognizer,
    load_run_on,
    token_names,
)
from arcgrad.recipes.metrics import Evaluation
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import load_environment, load_history

# The colours of runs, which are legible on a light and on a dark page.
COLORS = (
    *("#2f7ed8", "#d9480f", "#2b9348", "#ae3ec9", "#0c8599"),
    *("#e03170", "#8a6d00", "#7048e8", "#7d8590", "#a0522d"),
)

# The maximum number of confusions and of word-piece decompositions to list.
MOST_ROWS = 10


@dataclass(eq=False)
class PageRun:
    """A run with the data that a page shows about it."""

    path: Path
    name: str
    color: str
    experiment: Experiment
    recognizer: Recognizer
    history: list[dict[str, float]]
    environment: dict[str, Any]
    dataset: Dataset | None = None
    evaluation: Evaluation | None = None
    problem: str = ""
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def has_lexicon(self) -> bool:
        """Whether the loss sums over the decompositions of a text into word pieces."""
        return self.recognizer.criterion.lexicon is not None


def names(paths: Sequence[Path]) -> list[str]:
    """Return a short name for each run: its path relative to the common parent folder.

    A single run gets its last three folders, since the last one is often just "run".
    """
    whole = [path.resolve() for path in paths]
    if len(whole) == 1:
        return ["/".join(whole[0].parts[-3:])]
    common = os.path.commonpath(whole)
    found = [os.path.relpath(path, common) for path in whole]
    return [path.name if name == "." else name for name, path in zip(found, whole, strict=True)]


def colors(count: int) -> list[str]:
    """Return a colour for each run."""
    return [COLORS[i % len(COLORS)] for i in range(count)]


def load(path: Path, name: str, color: str, checkpoint: str, device: str) -> PageRun:
    """Load a run without its data."""
    experiment, recognizer = load_run_on("write_report", path, checkpoint, device)
    history, environment = load_history(path), load_environment(path)
    environment.pop("earlier", None)
    return PageRun(path, name, color, experiment, recognizer, history, environment)


def evaluate(run: PageRun, datasets: dict[Any, Dataset], split: Split, threads: int) -> None:
    """Add the data and the errors of a run, or the reason why the data cannot be loaded."""
    # Runs often have the same data, and loading takes longer than recognition.
    key = run.experiment.data, run.experiment.tokens, run.experiment.seed
    try:
        if key not in datasets:
            datasets[key] = getattr(load_data(run.experiment), split)
        dataset = datasets[key]
    except (OSError, ValueError) as error:
        run.problem = " ".join(str(error).split())
        return
    recognizer, batch_size = run.recognizer, run.experiment.optim.batch_size
    run.dataset = dataset
    run.evaluation = evaluate_recognizer(
        recognizer, dataset, batch_size=batch_size, threads=threads
    )
    if run.has_lexicon:
        emissions = dataset_emissions(recognizer, dataset, batch_size=batch_size)
        tokenizer = recognizer.tokenizer
        run.comparisons = compare(
            count_decompositions(_decompositions(run, emissions)),
            lambda word: [tokenizer.tokens[label] for label in tokenizer.encode(word)],
        )[:MOST_ROWS]


def _decompositions(run: PageRun, batches: Iterator[Any]) -> Iterator[list[str]]:
    """Return the best word pieces of each reference."""
    names = token_names(run.recognizer)
    for batch, emissions, lengths in batches:
        for one, length, text in zip(emissions, lengths.tolist(), batch.texts, strict=True):
            yield [names[span.token] for span in run.recognizer.align(one, length, text)]


def groups(runs: Sequence[PageRun]) -> list[list[PageRun]]:
    """Return the evaluated runs, grouped by their data."""
    found: dict[Any, list[PageRun]] = {}
    for run in runs:
        if run.dataset is not None:
            key = tuple(run.dataset.ids), tuple(run.dataset.texts)
            found.setdefault(key, []).append(run)
    return list(found.values())
