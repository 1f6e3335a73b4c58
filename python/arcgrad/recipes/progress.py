"""How far a training is, and the bar or the lines that show it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
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

    def means(self, split: str) -> dict[str, float]:
        """The mean loss and the error rates, named for a split."""
        return {
            f"{split}_loss": self.loss / max(self.examples, 1),
            f"{split}_cer": self.chars.rate,
            f"{split}_wer": self.words.rate,
        }


@dataclass
class Position:
    """How far a training is."""

    epoch: int = 0
    batches: int = 0  # of this epoch
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best_cer: float = math.inf
    sums: Sums = field(default_factory=Sums)
    history: list[dict[str, float]] = field(default_factory=list)


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

    def __enter__(self) -> Reporter:
        self._progress.start()
        self._task = self._progress.add_task("", rate="")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, markup=False)

    def step(self, position: Position, epochs: int, batches: int, rate: float) -> None:
        """Moves the bar."""
        if self._progress.disable:
            return
        means = position.sums.means("train")
        self._progress.update(
            self._task,
            description=f"epoch {position.epoch + 1}/{epochs} loss {means['train_loss']:.3f} "
            f"CER {means['train_cer']:.1f}%",
            completed=position.epoch * batches + position.batches,
            total=epochs * batches,
            rate=f"rate {rate:.2g}",
        )

    def epoch(self, numbers: dict[str, float], epochs: int, best: bool) -> None:
        """Prints the numbers of an epoch."""
        self.say(
            f"epoch {numbers['epoch']:.0f}/{epochs}"
            f"  train loss {numbers['train_loss']:.3f} CER {numbers['train_cer']:.1f}%"
            f"  validation loss {numbers['validation_loss']:.3f} "
            f"CER {numbers['validation_cer']:.1f}% WER {numbers['validation_wer']:.1f}%"
            f"  {numbers['seconds']:.0f} s{'  best' if best else ''}"
        )
