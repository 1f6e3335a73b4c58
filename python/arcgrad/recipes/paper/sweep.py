"""Train an experiment with several values of its settings, on Optuna."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from arcgrad import _files
from arcgrad.recipes.experiments import Experiment, override
from arcgrad.recipes.report import markdown_table, write_report
from arcgrad.recipes.run import LAST
from arcgrad.recipes.training import train

__all__ = ["sweep"]

STUDY = "study.log"


def sweep(
    experiment: Experiment,
    settings: Iterable[str],
    out: str | os.PathLike[str],
    *,
    trials: int | None = None,
    device: str = "cpu",
    threads: int = 1,
    quiet: bool = False,
) -> list[Path]:
    """Train an experiment with several values of its settings; the best has the lowest CER.

    Lists are combined in all ways. With a range, Optuna proposes the values of each trial from the
    results of those before. The study is kept in ``out``: the same call continues after an
    interruption, and several processes may work on one study.

    Args:
        experiment: The experiment.
        settings: Texts ``key=values``: one value, several separated by commas, or a range
            ``low..high``, which is searched on a logarithmic scale.
        out: The folder of the study, of the runs and of the report.
        trials: The number of trials; None for all combinations of lists.
        device: The device of the networks.
        threads: The number of threads of torch.
        quiet: Whether to print nothing.

    Returns:
        The files that were written: a table, and a page about all runs.

    Raises:
        ValueError: If a setting is invalid, there is a range but no number of trials, or Optuna is
            not installed.
    """
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise ValueError(
            "sweep: Optuna must be installed, but it is not; pip install 'arcgrad[sweep]'"
        ) from None
    space = _space(experiment, settings)
    ranges = [key for key, values in space.items() if isinstance(values, tuple)]
    if ranges and trials is None:
        raise ValueError(f"sweep: a range needs a number of trials, but {ranges[0]} has none")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    lists = {key: values for key, values in space.items() if isinstance(values, list)}
    count = math.prod(map(len, lists.values())) if trials is None else trials
    sampler: Any
    if ranges:
        sampler = optuna.samplers.TPESampler(seed=experiment.seed)
    else:
        sampler = optuna.samplers.GridSampler(lists, seed=experiment.seed)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    backend = JournalFileBackend(str(folder / STUDY))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name="sweep",
        sampler=sampler,
        load_if_exists=True,
    )
    done = _finished(study)
    todo = itertools.product(*lists.values()) if not ranges else None
    paths = {_name(trial.params): trial.value for trial in done}
    while len(paths) < count:
        if todo is not None:
            values = next(todo, None)
            if values is None:
                break
            wanted = dict(zip(lists, values, strict=True))
            if _name(wanted) in paths:
                continue
            study.enqueue_trial(wanted)
        trial = study.ask()
        chosen = {
            key: trial.suggest_float(key, *values, log=True)
            if isinstance(values, tuple)
            else trial.suggest_categorical(key, values)
            for key, values in space.items()
        }
        path = folder / _name(chosen)
        result = train(
            override(experiment, [f"{key}={value}" for key, value in chosen.items()]),
            path,
            resume=(path / LAST).exists(),
            device=device,
            threads=threads,
            quiet=quiet,
        )
        if result.interrupted:
            raise KeyboardInterrupt
        study.tell(trial, result.best_cer)
        paths[_name(chosen)] = result.best_cer
    return _write(study, folder)


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials() if trial.value is not None]


def _space(experiment: Experiment, settings: Iterable[str]) -> dict[str, Any]:
    """Return the values of each setting: a list, or a tuple of the ends of a range."""
    space: dict[str, Any] = {}
    for text in settings:
        key, equals, values = text.partition("=")
        if not equals:
            raise ValueError(f"sweep: a setting must be key=values, but it is {text!r}")
        if ".." in values:
            try:
                low, high = (float(end) for end in values.split(".."))
            except ValueError:
                low, high = math.nan, math.nan
            if not 0 < low < high:
                raise ValueError(
                    f"sweep: a range must be LOW..HIGH of positive numbers, but {key} is {values!r}"
                )
            space[key] = (low, high)
        else:
            space[key] = list(dict.fromkeys(value.strip() for value in values.split(",")))
        for value in space[key]:
            override(experiment, [f"{key}={value}"])  # raises for an invalid one
    if not space:
        raise ValueError("sweep: there must be a setting to vary, but there is none")
    return space


def _name(values: Mapping[str, Any]) -> str:
    """Return the folder of a trial, which has the same name whenever it is trained."""
    return ",".join(f"{key}={value}" for key, value in values.items()).replace(os.sep, "_")


def _write(study: Any, folder: Path) -> list[Path]:
    """Write a table of all trials, the best first, and a page about their runs."""
    ranked = sorted(_finished(study), key=lambda trial: trial.value)
    keys = list(ranked[0].params)
    rows = [[*(str(trial.params[key]) for key in keys), f"{trial.value:.2f}"] for trial in ranked]
    table = folder / "sweep.md"
    text = markdown_table([*keys, "validation CER"], rows)
    _files.write(table, f"# Sweep\n\n{text}\n".encode())
    runs = [folder / _name(trial.params) for trial in ranked]
    return [table, write_report(runs, folder / "report.html", split="validation", examples=2)]
