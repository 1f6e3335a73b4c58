"""The folder of a run: its settings, metrics and checkpoints."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import torch

from arcgrad import _files

from .experiments import Experiment, from_dict, to_dict
from .recognizer import Recognizer

__all__ = ["Run", "load_environment", "load_history", "load_run"]

BEST, LAST = "best.pt", "last.pt"
EXPERIMENT, ENVIRONMENT = "experiment.json", "environment.json"
METRICS, TENSORBOARD = "metrics.jsonl", "tensorboard"
BAD_BATCH = "bad_batch.pt"


class Run:
    """The folder with the checkpoints, the settings and the metrics of a training."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def save_settings(self, experiment: Experiment, recognizer: Recognizer) -> None:
        """Create the folder, with all that :func:`load_run` needs except a checkpoint."""
        self.path.mkdir(parents=True, exist_ok=True)
        recognizer.save(self.path)
        self._save_json(EXPERIMENT, to_dict(experiment))

    def settings(self, op: str) -> Experiment:
        """Read the settings of the run."""
        return from_dict(self._load_json(op, EXPERIMENT), source=self.path / EXPERIMENT)

    def save_environment(self, environment: dict[str, Any], *, is_first: bool) -> None:
        """Save the environment of a new or resumed run; earlier environments are kept."""
        earlier: list[dict[str, Any]] = []
        if not is_first and (self.path / ENVIRONMENT).exists():
            before = self.environment("train")
            earlier = [*before.pop("earlier"), before]
        self._save_json(ENVIRONMENT, {**environment, "earlier": earlier})

    def environment(self, op: str) -> dict[str, Any]:
        """Read the environment of the run."""
        return self._load_json(op, ENVIRONMENT)

    def save(self, name: str, content: dict[str, Any]) -> None:
        """Write tensors and plain values to a file, atomically."""
        buffer = io.BytesIO()
        torch.save(content, buffer)
        _files.write(self.path / name, buffer.getvalue())

    def load(self, op: str, name: str) -> dict[str, Any]:
        """Read a checkpoint."""
        path = self.path / name
        if not path.exists():
            hint = ""
            if name == BEST and (self.path / LAST).exists():
                hint = "; it was interrupted in its first epoch: resume it, or use the last one"
            raise ValueError(
                f"{op}: a run must have a checkpoint, but there is no {str(path)!r}{hint}"
            )
        try:
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ValueError(
                f"{op}: a checkpoint must be whole, but {str(path)!r} cannot be read: {reason}"
            ) from None
        return content

    def _save_json(self, name: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        _files.write(self.path / name, text.encode())

    def _load_json(self, op: str, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            raise ValueError(
                f"{op}: the folder of a run must have {name}, but {str(self.path)!r} has not"
            )
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{op}: {str(path)!r} must be JSON, but it is not: {error}") from None
        return content

    def save_metrics(self, history: list[dict[str, float]]) -> None:
        """Write the metrics of all epochs."""
        lines = "".join(json.dumps(numbers) + "\n" for numbers in history)
        _files.write(self.path / METRICS, lines.encode())


def load_run(
    path: str | os.PathLike[str], checkpoint: str = "best"
) -> tuple[Experiment, Recognizer]:
    """Load the settings and the recogniser of a run.

    Args:
        path: The folder of the run.
        checkpoint: ``"best"`` or ``"last"``.

    Raises:
        ValueError: If there is no such run or checkpoint.

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
    run = Run(path)
    experiment = run.settings("load_run")
    content = run.load("load_run", names[checkpoint])
    recognizer = Recognizer.load(experiment, run.path, content["height"])
    recognizer.network.load_state_dict(content["network"])
    recognizer.criterion.load_state_dict(content["criterion"])
    return experiment, recognizer.eval()


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
    file = Path(path) / METRICS
    if not file.exists():
        return []
    try:
        return [dict(json.loads(line)) for line in file.read_text().splitlines()]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"load_history: {str(file)!r} must have a line of JSON for each epoch, but reading it "
            f"fails: {error}"
        ) from None
