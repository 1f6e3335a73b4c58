"""Tables with a column for each run: metrics, settings, environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from arcgrad.recipes import metrics
from arcgrad.recipes.experiments import Experiment, flatten

from .page_runs import PageRun

# Stands for an unknown value.
UNKNOWN = "?"


@dataclass(frozen=True)
class _Row:
    """A row of a table with a cell for each run."""

    name: str
    cells: list[str]

    @property
    def differs(self) -> bool:
        """Whether the cells differ."""
        return len(set(self.cells)) > 1


def summary(runs: Sequence[PageRun]) -> list[_Row]:
    """Return the errors, times and sizes of runs."""

    def errors(run: PageRun, what: str) -> str:
        if run.evaluation is None:
            return UNKNOWN
        e: metrics.Errors = getattr(run.evaluation, what)
        return f"{e.substitutions}, {e.deletions}, {e.insertions} of {e.length}"

    def last(run: PageRun, key: str) -> float | None:
        return run.history[-1].get(key) if run.history else None

    def infeasible(run: PageRun) -> str:
        counts = (last(run, f"{split}_infeasible") for split in ("train", "validation"))
        train, validation = (UNKNOWN if count is None else f"{count:.0f}" for count in counts)
        return f"{train} in training, {validation} in validation"

    def best(run: PageRun) -> str:
        rates = [row["validation_cer"] for row in run.history if "validation_cer" in row]
        return percent(min(rates)) if rates else UNKNOWN

    def count(module: torch.nn.Module) -> str:
        return f"{sum(parameter.numel() for parameter in module.parameters()):,}"

    columns = [
        {
            "examples": UNKNOWN if run.evaluation is None else f"{len(run.evaluation.examples):,}",
            "letters wrong, missing, extra": errors(run, "chars"),
            "words wrong, missing, extra": errors(run, "words"),
            "best validation CER": best(run),
            "epochs": f"{len(run.history)} of {run.experiment.optim.epochs}",
            "targets too long for their frames": infeasible(run),
            "wall time of the training": _duration(last(run, "seconds")),
            "processor time of the training": _duration(last(run, "cpu_seconds")),
            "parameters of the network": count(run.recognizer.network),
            "parameters of the loss": count(run.recognizer.criterion),
            "tokens": f"{len(run.recognizer.tokenizer.tokens):,}",
        }
        for run in runs
    ]
    return [_Row(name, [column[name] for column in columns]) for name in columns[0]]


def percent(rate: float) -> str:
    """Format a rate."""
    return f"{rate:.2f}%" if math.isfinite(rate) else "∞"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def settings_text(experiment: Experiment) -> dict[str, str]:
    """Return all settings by dotted name, as texts that ``--set`` accepts."""
    return {name: _written(value) for name, value in flatten(experiment).items()}


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def settings(runs: Sequence[PageRun]) -> list[_Row]:
    """Return all settings of runs."""
    columns = [settings_text(run.experiment) for run in runs]
    return [_Row(name, [column[name] for column in columns]) for name in columns[0]]


def environment(runs: Sequence[PageRun]) -> list[_Row]:
    """Return the environments in which the runs were trained."""
    names = dict.fromkeys(name for run in runs for name in run.environment)
    return [
        _Row(name, [_written(run.environment.get(name, UNKNOWN)) for run in runs]) for name in names
    ]
