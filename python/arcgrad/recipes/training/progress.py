"""The position of a training, and the progress bar or lines that show it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from arcgrad.recipes.metrics import Errors, char_errors, word_errors

__all__ = ["EpochMetrics", "Position", "Reporter"]

# The time between two lines within an epoch where output is not a terminal.
LINE_SECONDS = 20.0


@dataclass
class EpochMetrics:
    """The sums of losses and errors over the examples of an epoch.

    The loss is the sum over feasible examples; infeasible ones, whose targets do not fit into their
    frames, have infinite losses and are counted. Errors are over all examples.
    """

    loss: float = 0.0
    examples: int = 0
    infeasible: int = 0
    chars: Errors = field(default_factory=Errors)
    words: Errors = field(default_factory=Errors)

    def add(self, losses: Tensor, references: Iterable[str], hypotheses: Iterable[str]) -> None:
        """Add the examples of a batch."""
        feasible = losses.detach().double()[~losses.detach().isinf()]
        self.loss += feasible.sum().item()
        self.examples += len(losses)
        self.infeasible += len(losses) - len(feasible)
        for reference, hypothesis in zip(references, hypotheses, strict=True):
            self.chars += char_errors(reference, hypothesis)
            self.words += word_errors(reference, hypothesis)

    def __add__(self, other: EpochMetrics) -> EpochMetrics:
        return EpochMetrics(
            self.loss + other.loss,
            self.examples + other.examples,
            self.infeasible + other.infeasible,
            self.chars + other.chars,
            self.words + other.words,
        )

    def to_list(self) -> list[float]:
        """Return all sums in a list, for an all-reduce."""
        return [
            self.loss,
            self.examples,
            self.infeasible,
            *astuple(self.chars),
            *astuple(self.words),
        ]

    @classmethod
    def from_list(cls, numbers: Sequence[float]) -> EpochMetrics:
        """Return the metrics of :meth:`to_list`."""
        loss, examples, infeasible, *errors = numbers
        counts = [int(count) for count in errors]
        return cls(loss, int(examples), int(infeasible), Errors(*counts[:4]), Errors(*counts[4:]))

    def means(self, split: str) -> dict[str, float]:
        """Return the mean loss, the number of infeasible examples and the error rates.

        Names have the split as a prefix. Without a feasible example the loss is infinite.
        """
        feasible = self.examples - self.infeasible
        return {
            f"{split}_loss": self.loss / feasible if feasible else math.inf,
            f"{split}_infeasible": self.infeasible,
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
    """A progress bar on a terminal, plain lines elsewhere, or nothing.

    Args:
        quiet: Whether to print nothing.
        epochs: The number of epochs.
        batches: The number of batches of an epoch, for training and for validation.
    """

    def __init__(self, quiet: bool, epochs: int = 1, batches: tuple[int, int] = (1, 0)) -> None:
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
        self._quiet, self._epochs, self._batches = quiet, epochs, batches
        self._task: TaskID | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Reporter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False)
        self._flush()

    def step(self, position: Position, learning_rate: float) -> None:
        """Advance the bar by a step of training; without a terminal print a line at times."""
        if self._quiet:
            return
        means = position.metrics.means("train")
        speed = position.batches / max(position.epoch_seconds, 1e-9)
        rate = f"{speed:.1f} batches/s  learning rate {learning_rate:.2g}"
        what = f"loss {means['train_loss']:.3f} CER {means['train_cer']:.1f}%"
        self._advance(position, position.batches, what, rate)

    def validate(self, position: Position, batches: int) -> None:
        """Advance the bar by batches of validation."""
        if not self._quiet:
            self._advance(position, self._batches[0] + batches, "validation", "")

    def _advance(self, position: Position, done: int, what: str, rate: str) -> None:
        total = sum(self._batches)
        if self._progress.disable:
            now = time.monotonic()
            if now - self._last_line >= LINE_SECONDS and done < total:
                self._last_line = now
                where = f"epoch {position.epoch + 1}/{self._epochs}  batch {done}/{total}"
                self.say("  ".join(part for part in (where, what, rate) if part))
            return
        done += position.epoch * total
        if self._task is None:
            # Only steps after this point count for the remaining time.
            self._task = self._progress.add_task(
                "", total=self._epochs * total, completed=done, rate=""
            )
        self._progress.update(
            self._task,
            description=f"epoch {position.epoch + 1}/{self._epochs} {what}",
            completed=done,
            rate=rate,
        )

    def epoch(self, numbers: Mapping[str, float], best: bool) -> None:
        """Print the metrics of an epoch."""
        self._last_line = time.monotonic()
        left_out = [
            f"{numbers[f'{split}_infeasible']:.0f} {split}"
            for split in ("train", "validation")
            if numbers[f"{split}_infeasible"]
        ]
        self.say(
            f"epoch {numbers['epoch']:.0f}/{self._epochs}"
            f"  train loss {numbers['train_loss']:.3f} CER {numbers['train_cer']:.1f}%"
            f"  validation loss {numbers['validation_loss']:.3f} "
            f"CER {numbers['validation_cer']:.1f}% WER {numbers['validation_wer']:.1f}%"
            f"  {numbers['seconds']:.0f} s{'  best' if best else ''}"
            + (f"  too short: {', '.join(left_out)}" if left_out else "")
        )

    def _flush(self) -> None:
        """Show a line at once where output is a pipe, which is buffered."""
        if not self._quiet:
            self._console.file.flush()
