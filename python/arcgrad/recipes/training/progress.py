"""The position of a training, and the progress bar or lines that show it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from arcgrad.recipes.metrics import Errors, char_errors, word_errors

__all__ = ["EpochMetrics", "Position", "Reporter"]


@dataclass
class EpochMetrics:
    """The sums of losses and errors over the examples of an epoch."""

    loss: float = 0.0
    examples: int = 0
    chars: Errors = field(default_factory=Errors)
    words: Errors = field(default_factory=Errors)

    def add(self, losses: Tensor, references: Iterable[str], hypotheses: Iterable[str]) -> None:
        """Add the examples of a batch."""
        self.loss += losses.detach().double().sum().item()
        self.examples += len(losses)
        for reference, hypothesis in zip(references, hypotheses, strict=True):
            self.chars += char_errors(reference, hypothesis)
            self.words += word_errors(reference, hypothesis)

    def __add__(self, other: EpochMetrics) -> EpochMetrics:
        return EpochMetrics(
            self.loss + other.loss,
            self.examples + other.examples,
            self.chars + other.chars,
            self.words + other.words,
        )

    def to_list(self) -> list[float]:
        """Return all sums in a list, for an all-reduce."""
        return [self.loss, self.examples, *astuple(self.chars), *astuple(self.words)]

    @classmethod
    def from_list(cls, numbers: Sequence[float]) -> EpochMetrics:
        """Return the metrics of :meth:`to_list`."""
        loss, examples, *errors = numbers
        counts = [int(count) for count in errors]
        return cls(loss, int(examples), Errors(*counts[:4]), Errors(*counts[4:]))

    def means(self, split: str) -> dict[str, float]:
        """Return the mean loss and the error rates, with the name of the split as a prefix."""
        return {
            f"{split}_loss": self.loss / max(self.examples, 1),
            f"{split}_cer": self.chars.rate,
            f"{split}_wer": self.words.rate,
        }


@dataclass
class Position:
    """The position of a training, the same in all processes.

    Attributes:
        epoch: The number of completed epochs.
        batches: The number of completed batches of the current epoch.
        seconds: The time of the training, including earlier parts of a resumed one.
        cpu_seconds: The processor time of all processes.
        epoch_seconds: The time of the completed batches of the current epoch.
        epoch_cpu_seconds: The processor time of these batches.
        best_cer: The lowest CER on the validation data.
        metrics: The metrics of the completed batches of the current epoch.
        history: The metrics of each completed epoch.
    """

    epoch: int = 0
    batches: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    epoch_seconds: float = 0.0
    epoch_cpu_seconds: float = 0.0
    best_cer: float = math.inf
    metrics: EpochMetrics = field(default_factory=EpochMetrics)
    history: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Position:
        """Return the position of a dictionary by :func:`dataclasses.asdict`.

        Raises:
            ValueError: If another version of arcgrad, with other fields, made the dictionary.
        """
        if different := {item.name for item in fields(cls)} ^ content.keys():
            raise ValueError(
                "train: the run must have been started by this version of arcgrad, but its "
                f"checkpoint differs in {', '.join(sorted(different))}; train it again"
            )
        metrics = dict(content["metrics"])
        for name in ("chars", "words"):
            metrics[name] = Errors(**metrics[name])
        return cls(**{**content, "metrics": EpochMetrics(**metrics)})


class Reporter:
    """A progress bar on a terminal, plain lines elsewhere, or nothing."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(quiet=quiet, highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Reporter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False)

    def step(self, position: Position, epochs: int, batches: int, learning_rate: float) -> None:
        """Advance the bar."""
        if self._progress.disable:
            return
        means = position.metrics.means("train")
        done = position.epoch * batches + position.batches
        if self._task is None:
            # Only steps after this point count for the remaining time.
            self._task = self._progress.add_task(
                "", total=epochs * batches, completed=done, rate=""
            )
        speed = position.batches / max(position.epoch_seconds, 1e-9)
        self._progress.update(
            self._task,
            description=f"epoch {position.epoch + 1}/{epochs} loss {means['train_loss']:.3f} "
            f"CER {means['train_cer']:.1f}%",
            completed=done,
            rate=f"{speed:.1f} batches/s  learning rate {learning_rate:.2g}",
        )

    def epoch(self, numbers: Mapping[str, float], epochs: int, best: bool) -> None:
        """Print the metrics of an epoch."""
        self.say(
            f"epoch {numbers['epoch']:.0f}/{epochs}"
            f"  train loss {numbers['train_loss']:.3f} CER {numbers['train_cer']:.1f}%"
            f"  validation loss {numbers['validation_loss']:.3f} "
            f"CER {numbers['validation_cer']:.1f}% WER {numbers['validation_wer']:.1f}%"
            f"  {numbers['seconds']:.0f} s{'  best' if best else ''}"
        )
