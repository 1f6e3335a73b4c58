"""How far a training is, and the bar or the lines that show it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from .metrics import Errors, char_errors, word_errors

__all__ = ["Position", "Reporter", "Sums"]


@dataclass
class Sums:
    """What adds up over an epoch."""

    loss: float = 0.0
    examples: int = 0
    chars: Errors = field(default_factory=Errors)
    words: Errors = field(default_factory=Errors)

    def add(self, losses: Tensor, references: Iterable[str], hypotheses: Iterable[str]) -> None:
        """Adds the examples of a batch."""
        self.loss += losses.detach().double().sum().item()
        self.examples += len(losses)
        for reference, hypothesis in zip(references, hypotheses, strict=True):
            self.chars += char_errors(reference, hypothesis)
            self.words += word_errors(reference, hypothesis)

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.loss + other.loss,
            self.examples + other.examples,
            self.chars + other.chars,
            self.words + other.words,
        )

    def numbers(self) -> list[float]:
        """All that adds up, one after the other."""
        return [self.loss, self.examples, *astuple(self.chars), *astuple(self.words)]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> Sums:
        """The sums of :meth:`numbers`."""
        loss, examples, *errors = numbers
        counts = [int(count) for count in errors]
        return cls(loss, int(examples), Errors(*counts[:4]), Errors(*counts[4:]))

    def means(self, split: str) -> dict[str, float]:
        """The mean loss and the error rates, named for a split."""
        return {
            f"{split}_loss": self.loss / max(self.examples, 1),
            f"{split}_cer": self.chars.rate,
            f"{split}_wer": self.words.rate,
        }


@dataclass
class Position:
    """How far a training is; the same in all processes.

    Attributes:
        epoch: The number of epochs that were done.
        batches: The number of batches of the next epoch that were done.
        seconds: The time of the training in all its parts.
        cpu_seconds: The time of processors, of all processes, whatever else the machine did.
        epoch_seconds: The time of the batches that were done.
        epoch_cpu_seconds: Their time of processors.
        best_cer: The lowest CER on the validation data.
        sums: What adds up over the batches that were done.
        history: The numbers of each epoch.
    """

    epoch: int = 0
    batches: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    epoch_seconds: float = 0.0
    epoch_cpu_seconds: float = 0.0
    best_cer: float = math.inf
    sums: Sums = field(default_factory=Sums)
    history: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def of_dict(cls, content: Mapping[str, Any]) -> Position:
        """The position that :func:`dataclasses.asdict` made a dictionary of."""
        sums = dict(content["sums"])
        for name in ("chars", "words"):
            sums[name] = Errors(**sums[name])
        return cls(**{**content, "sums": Sums(**sums)})


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
        """Prints a line."""
        self._console.print(text, markup=False)

    def step(self, position: Position, epochs: int, batches: int, learning_rate: float) -> None:
        """Moves the bar."""
        if self._progress.disable:
            return
        means = position.sums.means("train")
        done = position.epoch * batches + position.batches
        if self._task is None:
            # The time left is judged by the steps from here on.
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
        """Prints the numbers of an epoch."""
        self.say(
            f"epoch {numbers['epoch']:.0f}/{epochs}"
            f"  train loss {numbers['train_loss']:.3f} CER {numbers['train_cer']:.1f}%"
            f"  validation loss {numbers['validation_loss']:.3f} "
            f"CER {numbers['validation_cer']:.1f}% WER {numbers['validation_wer']:.1f}%"
            f"  {numbers['seconds']:.0f} s{'  best' if best else ''}"
        )
