"""The folder of a run: its settings, metrics and checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from arcgrad import _files

from .checked_files import digest, from_json, from_tensors, to_json, to_tensors
from .experiments import Experiment, from_dict, to_dict
from .recognizer import FILES, Recognizer

__all__ = ["Run", "fits", "load_environment", "load_history", "load_run"]

BEST, LAST = "best.safetensors", "last.safetensors"
EXPERIMENT, ENVIRONMENT = "experiment.json", "environment.json"
METRICS, TENSORBOARD = "metrics.jsonl", "tensorboard"
BAD_BATCH = "bad_batch.safetensors"

# The suffix of the checkpoints of earlier versions, which were pickles.
PICKLE = ".pt"


class Run:
    """The folder with the checkpoints, the settings and the metrics of a training.

    Every file carries a checksum, or a checkpoint has its checksum. Methods that read raise a
    ValueError that names the file if it is missing or changed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def save_settings(self, experiment: Experiment) -> None:
        """Create the folder, with the settings."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._save_json(EXPERIMENT, to_dict(experiment))

    def settings(self, op: str) -> Experiment:
        """Read the settings of the run; a file without a checksum may have been edited."""
        return from_dict(
            self._load_json(op, EXPERIMENT, editable=True), source=self.path / EXPERIMENT
        )

    def save_environment(self, environment: dict[str, Any], *, is_first: bool) -> None:
        """Save the environment of a new or resumed run; earlier environments are kept."""
        earlier: list[dict[str, Any]] = []
        if not is_first and (self.path / ENVIRONMENT).exists():
            before = self.environment("train")
            earlier = [*before.pop("earlier"), before]
        self._save_json(ENVIRONMENT, {**environment, "earlier": earlier})

    def environment(self, op: str) -> dict[str, Any]:
        """Read the environment of the run."""
        found = self._load_json(op, ENVIRONMENT)
        earlier = found.get("earlier")
        if not isinstance(earlier, list) or not all(isinstance(each, dict) for each in earlier):
            raise ValueError(
                f"{op}: {str(self.path / ENVIRONMENT)!r} must have a list of earlier environments, "
                "but it has none"
            )
        return found

    def digests(self) -> dict[str, str]:
        """Return the checksums of the recogniser's files, for checkpoints."""
        paths = (self.path / name for name in FILES)
        return {path.name: digest(path.read_bytes()) for path in paths if path.exists()}

    def check_digests(self, op: str, content: dict[str, Any]) -> None:
        """Raise unless the recogniser's files are those with which a checkpoint was made."""
        expected, found = content["files"], self.digests()
        for name in FILES:
            if expected.get(name) != found.get(name):
                what = "is another one" if name in found else "is missing"
                raise ValueError(
                    f"{op}: a run must have the files with which its checkpoints were made, but "
                    f"{str(self.path / name)!r} {what}"
                )

    def save(self, name: str, content: dict[str, Any]) -> None:
        """Write tensors and plain values to a file, atomically."""
        _files.write(self.path / name, to_tensors(content))

    def load(self, op: str, name: str) -> dict[str, Any]:
        """Read a checkpoint."""
        path = self.path / name
        if not path.exists():
            self.refuse_pickle(op, name)
            hint = ""
            if name == BEST and (self.path / LAST).exists():
                hint = "; it was interrupted in its first epoch: resume it, or use the last one"
            raise ValueError(
                f"{op}: a run must have a checkpoint, but there is no {str(path)!r}{hint}"
            )
        return from_tensors(op, path, path.read_bytes())

    def refuse_pickle(self, op: str, name: str) -> None:
        """Raise if an earlier version of arcgrad saved the checkpoint of this name."""
        path = (self.path / name).with_suffix(PICKLE)
        if path.exists():
            raise ValueError(
                f"{op}: a checkpoint must be a file of safetensors, but {str(path)!r} is a pickle "
                "by an earlier version of arcgrad, which could execute code; train the run again"
            )

    def _save_json(self, name: str, content: dict[str, Any]) -> None:
        _files.write(self.path / name, to_json(content))

    def _load_json(self, op: str, name: str, *, editable: bool = False) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            raise ValueError(
                f"{op}: the folder of a run must have {name}, but {str(self.path)!r} has not"
            )
        return from_json(op, path, path.read_bytes(), editable=editable)

    def save_metrics(self, history: list[dict[str, float]]) -> None:
        """Write the metrics of all epochs."""
        lines = [to_json(numbers, indent=None) for numbers in history]
        _files.write(self.path / METRICS, b"".join(lines))


def load_run(
    path: str | os.PathLike[str], checkpoint: str = "best"
) -> tuple[Experiment, Recognizer]:
    """Load the settings and the recogniser of a run.

    Args:
        path: The folder of the run.
        checkpoint: ``"best"`` or ``"last"``.

    Raises:
        ValueError: If there is no such run or checkpoint, or a file of it is damaged.

    >>> from arcgrad.recipes.run import load_run
    >>> load_run("nowhere")
    Traceback (most recent call last):
    ...
    ValueError: load_run: the folder of a run must have experiment.json, but 'nowhere' has not
    """
    names = {"best": BEST, "last": LAST}
    if checkpoint not in names:
        raise ValueError(
            f"load_run: the checkpoint must be 'best' or 'last', but it is {checkpoint!r}"
        )
    op, run = "load_run", Run(path)
    experiment = run.settings(op)
    content = run.load(op, names[checkpoint])
    with fits(op, run.path / names[checkpoint]):
        run.check_digests(op, content)
        height = content["height"]
        # Before anything is allocated, compare its size with the parameters of the checkpoint.
        with torch.device("meta"):
            Recognizer.load(experiment, run.path, height).load_parameters(content, assign=True)
        recognizer = Recognizer.load(experiment, run.path, height)
        recognizer.load_parameters(content)
    return experiment, recognizer.eval()


@contextlib.contextmanager
def fits(op: str, path: Path) -> Iterator[None]:
    """Raise a ValueError that names a checkpoint if it does not fit what it is loaded into."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"{op}: a checkpoint must fit the settings of its run and this version of arcgrad, but "
            f"{str(path)!r} does not: {_files.shown(error)}"
        ) from None


def load_environment(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Load the environment of a run: versions, the machine, the command.

    Args:
        path: The folder of the run.

    Returns:
        The environment of the last start, by
        :func:`arcgrad.recipes.training.describe_environment`, with a list ``earlier`` of the
        environments before the run was resumed.

    Raises:
        ValueError: If there is no such run.

    >>> from arcgrad.recipes.run import load_environment
    >>> load_environment("no")
    Traceback (most recent call last):
    ...
    ValueError: load_environment: the folder of a run must have environment.json, but 'no' has not
    """
    return Run(path).environment("load_environment")


def load_history(path: str | os.PathLike[str]) -> list[dict[str, float]]:
    """Load the metrics of each epoch of a run; an empty list if no epoch was completed.

    Args:
        path: The folder of the run.

    Raises:
        ValueError: If its ``metrics.jsonl`` is damaged.
    """
    op, file = "load_history", Path(path) / METRICS
    if not file.exists():
        return []
    history = []
    for number, line in enumerate(file.read_bytes().splitlines(keepends=True), 1):
        row = from_json(op, f"line {number} of {str(file)!r}", line, indent=None)
        for name, value in row.items():
            if type(value) not in (int, float):
                raise ValueError(
                    f"{op}: metrics must be numbers, but {_files.shown(name)} on line {number} of "
                    f"{str(file)!r} is {_files.shown(value)}"
                )
        history.append(row)
    return history
