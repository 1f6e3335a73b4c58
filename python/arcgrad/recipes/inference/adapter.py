"""Models of users: torch modules or saved arrays, as functions from files to log-probabilities."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import soundfile  # type: ignore[import-untyped]
import torch
from torch import Tensor

from arcgrad import _files
from arcgrad.recipes.data import input_features, read_input
from arcgrad.recipes.models import output_grid

from .devices import load_run_on
from .emissions import log_probs

__all__ = ["Adapter", "FileEmissions", "FileModel", "load_model"]


class FileEmissions(NamedTuple):
    """The log-probabilities ``[T, C]`` of a file; frame t begins at ``offset + t * shift``."""

    log_probs: npt.NDArray[Any]
    shift: float
    offset: float = 0.0
    unit: str = "seconds"


class FileModel(Protocol):
    """What the commands need: the names of labels, the blank, and emissions of files."""

    @property
    def labels(self) -> Sequence[str]:
        """The name of each label."""

    @property
    def blank(self) -> int | None:
        """The blank, unless its name tells."""

    def __call__(self, path: Path) -> FileEmissions:
        """Return the emissions of a file."""


class Adapter:
    """A network as a model of ``arcgrad align`` and ``arcgrad decode``.

    Args:
        network: A function or module from what ``read`` returns to scores ``[T, C]`` or
            ``[1, T, C]``, or to an object with these as ``logits``.
        labels: The name of each label.
        frame_shift: The seconds between two frames.
        read: Reads a file; by default a recording, as a tensor ``[1, samples]``.
        blank: The blank; by default found by its name.

    The scores may be logits or log-probabilities.

    >>> import torch
    >>> from arcgrad.recipes.inference import Adapter
    >>> model = Adapter(lambda x: x, ["-", "a"], 0.02, read=lambda path: torch.zeros(5, 2), blank=0)
    >>> model("line.png").log_probs.shape
    (5, 2)
    """

    def __init__(
        self,
        network: Callable[[Any], Any],
        labels: Sequence[str],
        frame_shift: float,
        read: Callable[[Path], Any] | None = None,
        blank: int | None = None,
    ) -> None:
        self._network, self._read, self._shift = network, read or _read_recording, frame_shift
        self.labels, self.blank = [*labels], blank
        if isinstance(network, torch.nn.Module):
            network.eval()

    @torch.no_grad()
    def __call__(self, path: Path) -> FileEmissions:
        """Return the emissions of a file."""
        scores = self._network(self._read(path))
        scores = torch.as_tensor(getattr(scores, "logits", scores))
        if scores.dim() == 3 and len(scores) == 1:
            scores = scores[0]
        if scores.dim() != 2 or scores.shape[1] != len(self.labels):
            raise ValueError(
                f"Adapter: a network must return [T, {len(self.labels)}], one column per label, "
                f"but it returns {list(scores.shape)}"
            )
        return FileEmissions(scores.float().log_softmax(-1).cpu().numpy(), self._shift)


def _read_recording(path: Path) -> Tensor:
    samples, _ = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples.mean(axis=1))[None]


class _SavedArrays:
    """Arrays ``[T, C]`` in ``.npy`` files."""

    def __init__(self, op: str, labels: Path, frame_shift: float | None) -> None:
        text = _files.read_text(op, labels)
        self.labels = [line for line in text.split("\n") if line]
        self.blank: int | None = None
        self._op, self._shift = op, frame_shift

    def __call__(self, path: Path) -> FileEmissions:
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(
                f"{self._op}: {str(path)!r} must be an array saved by numpy.save, but it cannot be "
                f"read: {_files.reason(error)}"
            ) from None
        if self._shift is None:
            return FileEmissions(array, 1.0, unit="frames")
        return FileEmissions(array, self._shift)


class _TrainedRun:
    """A run of the recipes."""

    def __init__(self, op: str, folder: Path, checkpoint: str, device: str) -> None:
        experiment, recognizer = load_run_on(op, folder, checkpoint, device)
        if recognizer.first_label != 1:
            raise ValueError(
                f"{op}: the model of a corpus must have a blank, but that of the run has none"
            )
        self._recognizer = recognizer
        self._features = input_features(experiment, recognizer.height)
        self.labels = ["<blank>", *recognizer.tokenizer.tokens]
        self.blank: int | None = 0

    def __call__(self, path: Path) -> FileEmissions:
        source = read_input(self._features, path)
        scores = log_probs(self._recognizer, source.values).numpy()
        grid = output_grid(self._recognizer.network)
        # The border between a frame and its predecessor.
        offset = source.first + source.step * (grid.first - 0.5 * grid.step)
        return FileEmissions(scores, source.step * grid.step, offset, source.unit)


def load_model(
    op: str,
    model: str | os.PathLike[str],
    *,
    frame_shift: float | None = None,
    checkpoint: str = "best",
    device: str = "cpu",
) -> FileModel:
    """Load the model of a command.

    Args:
        op: The name of the command, for messages.
        model: The folder of a run; ``file.py:name`` of an :class:`Adapter`; or a file with the name
            of a label on each line, for arrays in ``.npy`` files.
        frame_shift: The seconds between two frames of arrays; without it positions are frames.
        checkpoint: Of a run: ``"best"`` or ``"last"``.
        device: Of a run.

    Raises:
        ValueError: If there is no such model.
    """
    path = Path(model)
    if path.is_dir():
        return _TrainedRun(op, path, checkpoint, device)
    file, colon, name = str(model).rpartition(":")
    if colon and file.endswith(".py"):
        return _import_adapter(op, Path(file), name)
    if not path.is_file():
        raise ValueError(
            f"{op}: a model must be the folder of a run, file.py:name, or a file of labels, but "
            f"{str(model)!r} does not exist"
        )
    return _SavedArrays(op, path, frame_shift)


def _import_adapter(op: str, file: Path, name: str) -> FileModel:
    if not file.is_file():
        raise ValueError(f"{op}: the file of an adapter must exist, but {str(file)!r} is missing")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = getattr(module, name, None)
    if not callable(model) or not hasattr(model, "labels"):
        raise ValueError(
            f"{op}: an adapter must be callable and have labels, but {name!r} of {str(file)!r} "
            + ("is missing" if model is None else f"is of type {type(model).__name__}")
        )
    found: FileModel = model
    return found
