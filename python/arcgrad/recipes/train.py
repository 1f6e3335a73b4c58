"""The training loop of all experiments, and the evaluation of what it made."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from .data import Batch, BucketSampler, Dataset, Splits, collate
from .experiment import Experiment, OptimSettings, from_dict, to_dict
from .metrics import Errors, Evaluation, evaluate
from .progress import Position, Reporter, Sums
from .recognizer import Recognizer, load_data
from .run import BAD_BATCH, BEST, EXPERIMENT, LAST, Run, load_run

__all__ = ["Result", "TrainingError", "evaluate_run", "load_run", "train"]

# The share of a one-cycle schedule in which rates rise.
WARM_UP = 0.1


class TrainingError(RuntimeError):
    """A training that cannot go on."""


@dataclass(frozen=True)
class Result:
    """What a training came to.

    Attributes:
        epochs: The number of epochs that were done.
        best_cer: The lowest CER on the validation data, in percent.
        history: The numbers of each epoch, as they are in ``metrics.jsonl``.
        finished: Whether all epochs were done; else the run can be resumed.
        interrupted: Whether Ctrl-C ended it.
    """

    epochs: int
    best_cer: float
    history: tuple[dict[str, float], ...]
    finished: bool
    interrupted: bool = False


class _Interrupts:
    """Remembers the first Ctrl-C, so that a step is finished; the second interrupts."""

    def __init__(self) -> None:
        self.asked = False

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> _Interrupts:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def _factor(settings: OptimSettings, epoch: int, progress: float) -> float:
    """What learning rates are multiplied by in an epoch, when a share of the training is done."""
    if settings.schedule == "step":
        return settings.decay ** (epoch // settings.step_size)
    if progress < WARM_UP:
        return 0.1 + 0.9 * progress / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * min((progress - WARM_UP) / (1 - WARM_UP), 1.0)))


def _optimizer(settings: OptimSettings, recognizer: Recognizer) -> torch.optim.Optimizer:
    rate = settings.learning_rate
    own = settings.criterion_learning_rate
    groups: list[dict[str, Any]] = [
        {"params": list(recognizer.network.parameters()), "lr": rate},
        {
            "params": list(recognizer.criterion.parameters()),
            "lr": rate if own is None else own,
            "weight_decay": 0.0,
        },
    ]
    method = torch.optim.SGD if settings.method == "sgd" else torch.optim.AdamW
    return method(groups, lr=rate, weight_decay=settings.weight_decay)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _same_but_epochs(one: Experiment, other: Experiment) -> bool:
    optim = replace(one.optim, epochs=other.optim.epochs)
    return replace(one, optim=optim, description=other.description) == other


class _Training:
    """A training in progress: what its checkpoints hold, and one epoch after the other."""

    def __init__(
        self,
        experiment: Experiment,
        splits: Splits[Any],
        run: Run,
        device: str,
        max_seconds: float | None,
    ) -> None:
        self.experiment, self.splits, self.run, self.device = experiment, splits, run, device
        self.max_seconds = max_seconds
        torch.manual_seed(experiment.seed)
        self.recognizer = Recognizer.for_data(experiment, splits.train).to(device)
        self.optimizer = _optimizer(experiment.optim, self.recognizer)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.sampler = BucketSampler(
            splits.train.lengths, experiment.optim.batch_size, seed=experiment.seed
        )
        self.num_batches = len(self.sampler)
        self.position = Position()
        self._started, self._cpu_started = time.monotonic(), time.process_time()

    def checkpoint(self) -> dict[str, Any]:
        """All that the rest of the training depends on."""
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {
            "experiment": to_dict(self.experiment),
            "height": self.recognizer.height,
            "network": self.recognizer.network.state_dict(),
            "criterion": self.recognizer.criterion.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "position": asdict(
                replace(self.position, seconds=self.seconds(), cpu_seconds=self.cpu_seconds())
            ),
            "rng": {"host": torch.get_rng_state(), "devices": devices},
        }

    def restore(self, content: dict[str, Any]) -> None:
        """Goes back to a checkpoint."""
        self.recognizer.network.load_state_dict(content["network"])
        self.recognizer.criterion.load_state_dict(content["criterion"])
        self.optimizer.load_state_dict(content["optimizer"])
        position = dict(content["position"])
        sums = dict(position.pop("sums"))
        for name in ("chars", "words"):
            sums[name] = Errors(**sums[name])
        self.position = Position(**position, sums=Sums(**sums))
        torch.set_rng_state(content["rng"]["host"])
        if content["rng"]["devices"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(content["rng"]["devices"])
        self._started, self._cpu_started = time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """The time that the training took, in all its parts."""
        return self.position.seconds + time.monotonic() - self._started

    def cpu_seconds(self) -> float:
        """The time of processors that the training took, whatever else the machine did."""
        return self.position.cpu_seconds + time.process_time() - self._cpu_started

    def is_over(self) -> bool:
        """Whether the time is."""
        return self.max_seconds is not None and self.seconds() >= self.max_seconds

    def set_rates(self) -> None:
        """Sets the learning rates of a step."""
        settings, at = self.experiment.optim, self.position
        steps = at.epoch * self.num_batches + at.batches
        progress = steps / (settings.epochs * self.num_batches)
        if self.max_seconds is not None:
            # On a slow machine the schedule ends with the time.
            progress = max(progress, self.seconds() / self.max_seconds)
        factor = _factor(settings, at.epoch, progress)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def rate(self) -> float:
        """The learning rate of the network."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self, batch: Batch) -> None:
        """Learns from a batch."""
        recognizer = self.recognizer
        emissions, lengths = recognizer(batch.to(self.device))
        losses = recognizer.loss(emissions, lengths, batch)
        self.optimizer.zero_grad()
        losses.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(
            recognizer.parameters(), self.experiment.optim.max_grad_norm
        )
        if not (losses.isfinite().all() and norm.isfinite()):
            self._give_up(batch, losses, norm.item())
        self.optimizer.step()
        texts = recognizer.transcribe(emissions.detach(), lengths)
        self.position.sums.add(losses, batch.texts, texts)
        self.position.batches += 1

    def _give_up(self, batch: Batch, losses: Tensor, norm: float) -> None:
        content = {**vars(batch), "losses": losses.detach(), "grad_norm": norm}
        self.run.save(BAD_BATCH, content)
        bad = [name for name, loss in zip(batch.ids, losses.tolist(), strict=True) if loss != loss]
        what = f"the loss of {', '.join(bad)} is NaN" if bad else f"the gradient's norm is {norm}"
        raise TrainingError(
            f"train: losses and gradients must be finite, but in epoch {self.position.epoch + 1}, "
            f"batch {self.position.batches + 1}, {what}; the batch is in "
            f"{str(self.run.path / BAD_BATCH)!r}, try a lower optim.learning_rate"
        )

    def end_epoch(self) -> bool:
        """Validates, saves the numbers and checkpoints; returns whether this epoch is the best."""
        at = self.position
        validation = Sums()
        for batch, losses, texts in _recognized(
            self.recognizer, self.splits.validation, self.experiment, self.device
        ):
            validation.add(losses, batch.texts, texts)
        numbers: dict[str, float] = {
            "epoch": at.epoch + 1,
            "steps": at.epoch * self.num_batches + at.batches,
            "learning_rate": self.rate(),
            **at.sums.means("train"),
            **validation.means("validation"),
            "seconds": round(self.seconds(), 3),
            "cpu_seconds": round(self.cpu_seconds(), 3),
        }
        is_best = numbers["validation_cer"] < at.best_cer
        at.best_cer = min(at.best_cer, numbers["validation_cer"])
        at.history.append(numbers)
        at.epoch, at.batches, at.sums = at.epoch + 1, 0, Sums()
        content = self.checkpoint()
        if is_best:
            self.run.save(BEST, content)
        # The last checkpoint comes last: a run that is killed before it repeats the epoch.
        self.run.save_metrics(at.history)
        self.run.save(LAST, content)
        return is_best


def _loader(dataset: Dataset, sampler: BucketSampler) -> Iterable[Batch]:
    # With a generator of its own: that of torch is for dropout, and an iterator would advance it.
    return DataLoader(
        dataset, batch_sampler=sampler, collate_fn=collate, generator=torch.Generator()
    )


def _recognized(
    recognizer: Recognizer, dataset: Dataset, experiment: Experiment, device: str
) -> Iterator[tuple[Batch, Tensor, list[str]]]:
    """The batches of a data set with their losses and the texts that were recognised."""
    sampler = BucketSampler(dataset.lengths, experiment.optim.batch_size, shuffle=False)
    recognizer.eval()
    with torch.no_grad():
        for batch in _loader(dataset, sampler):
            emissions, lengths = recognizer(batch.to(device))
            losses = recognizer.loss(emissions, lengths, batch)
            yield batch, losses, recognizer.transcribe(emissions, lengths)


def train(
    experiment: Experiment,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    max_seconds: float | None = None,
    device: str = "cpu",
    threads: int = 1,
    quiet: bool = False,
) -> Result:
    """Trains a recogniser.

    The folder gets the settings, ``metrics.jsonl`` with the numbers of each epoch, and the
    checkpoints ``best.pt`` (lowest CER on the validation data) and ``last.pt``. With the same
    settings, machine and number of threads a training gives the same bits, whether it was
    interrupted or not. Ctrl-C finishes the step, saves ``last.pt`` and returns.

    Args:
        experiment: The settings.
        out: The folder of the run.
        resume: Whether to go on from ``last.pt``; only the number of epochs may differ.
        max_seconds: The time for the training in all its parts. At its end the epoch is cut short
            and validated. A one-cycle schedule ends with it, so that the result depends on the
            speed of the machine.
        device: Where the network is; graphs are on the host.
        threads: How many threads torch uses; one is best for small networks.
        quiet: Whether to print nothing.

    Returns:
        What it came to.

    Raises:
        ValueError: If there is a run in the folder already, or none to resume, or another one; or
            there is no time.
        TrainingError: If a loss is NaN; the batch is saved as ``bad_batch.pt``.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.experiment import override
    >>> from arcgrad.recipes.train import train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=4", "optim.epochs=1"]
    >>> result = train(override(find("demo"), sizes), "run", quiet=True)
    >>> result.epochs, result.finished
    (1, True)
    """
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"train: max_seconds must be positive, but it is {max_seconds}")
    run = Run(out)
    if resume:
        saved = run.load("train", LAST)
        if not _same_but_epochs(from_dict(saved["experiment"]), experiment):
            raise ValueError(
                "train: a run must be resumed with its own settings, but those in "
                f"{str(run.path / EXPERIMENT)!r} differ"
            )
    elif (run.path / LAST).exists():
        raise ValueError(
            f"train: the folder must be free, but {str(run.path)!r} has a run; resume it or choose "
            "another folder"
        )
    with _threads(threads), _Interrupts() as interrupts, Reporter(quiet) as reporter:
        training = _Training(experiment, load_data(experiment), run, device, max_seconds)
        if resume:
            training.restore(saved)
        run.save_settings(experiment, training.recognizer)
        count = sum(parameter.numel() for parameter in training.recognizer.parameters())
        reporter.say(f"{len(training.splits.train)} training examples, {count} parameters")
        at, epochs = training.position, experiment.optim.epochs
        while at.epoch < epochs and not training.is_over():
            training.sampler.set_epoch(at.epoch, at.batches)
            training.recognizer.train()
            for batch in _loader(training.splits.train, training.sampler):
                training.set_rates()
                training.step(batch)
                reporter.step(at, epochs, training.num_batches, training.rate())
                if interrupts.asked or training.is_over():
                    break
            if interrupts.asked:
                run.save(LAST, training.checkpoint())
                reporter.say(f"interrupted; resume the run in {str(run.path)!r}")
                return Result(at.epoch, at.best_cer, tuple(at.history), False, interrupted=True)
            is_best = training.end_epoch()
            reporter.epoch(at.history[-1], epochs, is_best)
        if at.epoch < epochs:
            reporter.say(f"stopped after {max_seconds:g} s, as was asked")
    return Result(at.epoch, at.best_cer, tuple(at.history), at.epoch >= epochs)


def evaluate_run(
    path: str | os.PathLike[str],
    split: str = "test",
    *,
    checkpoint: str = "best",
    device: str = "cpu",
    threads: int = 1,
) -> Evaluation:
    """The error rates of a run.

    Args:
        path: The folder of the run.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        checkpoint: ``"best"`` or ``"last"``.
        device: Where the network is.
        threads: How many threads torch uses.

    Returns:
        The errors, with an entry for each example in the order of the data.

    Raises:
        ValueError: If there is no such run, checkpoint or split.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.experiment import override
    >>> from arcgrad.recipes.train import evaluate_run, train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=4", "optim.epochs=1"]
    >>> _ = train(override(find("demo"), sizes), "run", quiet=True)
    >>> len(evaluate_run("run").examples)
    4
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(
            f"evaluate_run: the split must be 'train', 'validation' or 'test', but it is {split!r}"
        )
    experiment, recognizer = load_run(path, checkpoint)
    dataset = getattr(load_data(experiment), split)
    found: dict[str, str] = {}
    with _threads(threads):
        for batch, _, texts in _recognized(recognizer.to(device), dataset, experiment, device):
            found.update(zip(batch.ids, texts, strict=True))
    return evaluate(dataset.texts, [found[name] for name in dataset.ids])
