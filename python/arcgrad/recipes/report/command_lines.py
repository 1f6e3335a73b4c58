"""The command lines that reproduce the runs and the page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from arcgrad.recipes.experiments import EXPERIMENTS

from .page_runs import PageRun
from .run_tables import settings_text


def command_lines(
    runs: Sequence[PageRun],
    out: str | os.PathLike[str],
    split: str,
    checkpoint: str,
    examples: int,
) -> list[str]:
    """Return the command lines that reproduce the runs and the page."""
    found = [shlex.join(["arcgrad", "train", *_train_arguments(run)]) for run in runs]
    options = ["--split", split, "--checkpoint", checkpoint]
    paths = [str(run.path) for run in runs]
    found += [shlex.join(["arcgrad", "test", path, *options]) for path in paths]
    page = ["--examples", str(examples), "--out", str(out)]
    return [*found, shlex.join(["arcgrad", "report", *paths, *options, *page])]


def _train_arguments(run: PageRun) -> list[str]:
    """Return the most similar named experiment, and options for the settings that differ."""
    wanted = settings_text(run.experiment)
    changes = {}
    for name, experiment in EXPERIMENTS.items():
        named = settings_text(experiment)
        changes[name] = {key: value for key, value in wanted.items() if named[key] != value}
    # The description does not count as a difference, but breaks ties.
    called = {name: changed.pop("description", None) for name, changed in changes.items()}
    nearest = min(changes, key=lambda name: (len(changes[name]), called[name] is not None))
    arguments = [nearest, "--out", str(run.path)]
    for key, value in changes[nearest].items():
        arguments += ["--set", f"{key}={value}"]
    usual = {"max_seconds": None, "threads": 1, "device": "cpu"}
    for option, default in usual.items():
        given = run.environment.get(option, default)
        if given != default:
            arguments += [f"--{option.replace('_', '-')}", str(given)]
    return arguments
