"""The runs of a page: what they are called, their data and their errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arcgrad.recipes import analysis, train
from arcgrad.recipes.alignment import token_names
from arcgrad.recipes.data import Dataset
from arcgrad.recipes.experiment import Experiment
from arcgrad.recipes.metrics import Evaluation
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import load_environment, load_history

# Of runs, to be told apart on light and on dark paper.
COLORS = (
    *("#2f7ed8", "#d9480f", "#2b9348", "#ae3ec9", "#0c8599"),
    *("#e03170", "#8a6d00", "#7048e8", "#7d8590", "#a0522d"),
)

# How many confusions and word-piece decompositions are listed.
MOST_ROWS = 10


@dataclass(eq=False)
class PageRun:
    """What a page says about a run."""

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
    comparisons: list[analysis.Comparison] = field(default_factory=list)

    @property
    def has_lexicon(self) -> bool:
        """Whether the loss leaves the word pieces of a text to the model."""
        return self.recognizer.criterion.lexicon is not None


def names(paths: Sequence[Path]) -> list[str]:
    """A short name for each run: what its path has after the folder that all share.

    Of a single run the last folders: its own is often just called run.
    """
    whole = [path.resolve() for path in paths]
    if len(whole) == 1:
        return ["/".join(whole[0].parts[-3:])]
    common = os.path.commonpath(whole)
    found = [os.path.relpath(path, common) for path in whole]
    return [path.name if name == "." else name for name, path in zip(found, whole, strict=True)]


def colors(count: int) -> list[str]:
    """A colour for each run."""
    return [COLORS[i % len(COLORS)] for i in range(count)]


def load(path: Path, name: str, color: str, checkpoint: str) -> PageRun:
    """A run, without its data yet."""
    experiment, recognizer = train.load_run(path, checkpoint)
    history, environment = load_history(path), load_environment(path)
    environment.pop("earlier", None)
    return PageRun(path, name, color, experiment, recognizer, history, environment)


def evaluate(
    run: PageRun, datasets: dict[Any, Dataset], split: str, device: str, threads: int
) -> None:
    """Adds the data of a run and its errors, or why there are none."""
    # Runs often share their data, which take longer to load than to recognise.
    key = run.experiment.data, run.experiment.tokens, run.experiment.seed
    try:
        if key not in datasets:
            datasets[key] = train.load_split(run.experiment, split)
        dataset = datasets[key]
    except (OSError, ValueError) as error:
        run.problem = " ".join(str(error).split())
        return
    options: dict[str, Any] = {"batch_size": run.experiment.optim.batch_size, "device": device}
    run.dataset = dataset
    run.evaluation = train.evaluate_recognizer(run.recognizer, dataset, threads=threads, **options)
    if run.has_lexicon:
        pieces = _decompositions(run, train.outputs(run.recognizer, dataset, **options))
        tokenizer = run.recognizer.tokenizer
        run.comparisons = analysis.compare(
            analysis.count_decompositions(pieces),
            lambda word: [tokenizer.tokens[label] for label in tokenizer.encode(word)],
        )[:MOST_ROWS]


def _decompositions(run: PageRun, outputs: Iterator[Any]) -> Iterator[list[str]]:
    """The best word pieces of each reference."""
    names = token_names(run.recognizer)
    for batch, emissions, lengths in outputs:
        for one, length, text in zip(emissions, lengths.tolist(), batch.texts, strict=True):
            yield [names[span.token] for span in run.recognizer.align(one, length, text)]


def groups(runs: Sequence[PageRun]) -> list[list[PageRun]]:
    """The runs that were evaluated, those with the same data together."""
    found: dict[Any, list[PageRun]] = {}
    for run in runs:
        if run.dataset is not None:
            key = tuple(run.dataset.ids), tuple(run.dataset.texts)
            found.setdefault(key, []).append(run)
    return list(found.values())
