"""The training loop of all experiments, and the evaluation of what it made."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from .board import open_board
from .data import Batch, BucketSampler, Dataset, Key, Splits, collate
from .data._random import stream
from .data.examples import SPLITS
from .environment import describe_environment
from .experiment import Experiment, OptimSettings, from_dict, to_dict
from .metrics import Evaluation, evaluate
from .processes import Processes, check_device, join
from .progress import Position, Reporter, Sums
from .recognizer import Recognizer, load_data
from .run import BAD_BATCH, BEST, BOARD, EXPERIMENT, LAST, Run, load_run

__all__ = [
    "Result",
    "TrainingError",
    "evaluate_recognizer",
    "evaluate_run",
    "load_run",
    "load_split",
    "outputs",
    "train",
]

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
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _saved(run: Run, experiment: Experiment) -> dict[str, Any]:
    """The last checkpoint of a run that an experiment can go on with."""
    content = run.load("train", LAST)
    before = from_dict(content["experiment"])
    optim = replace(before.optim, epochs=experiment.optim.epochs)
    if replace(before, optim=optim, description=experiment.description) != experiment:
        raise ValueError(
            "train: a run must be resumed with its own settings, but those in "
            f"{str(run.path / EXPERIMENT)!r} differ"
        )
    return content


class _Losses(nn.Module):
    """The losses of a batch, with the emissions: the network and the criterion as one module."""

    def __init__(self, recognizer: Recognizer) -> None:
        super().__init__()
        self.recognizer = recognizer

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        emissions, lengths = self.recognizer(batch)
        return self.recognizer.loss(emissions, lengths, batch), emissions, lengths


class _Training:
    """A training in progress: what its checkpoints hold, and one epoch after the other.

    All processes do the same steps and know the same position. They meet after each batch, where
    they agree on the time, on Ctrl-C and on whether a loss was not finite.
    """

    def __init__(
        self,
        experiment: Experiment,
        splits: Splits[Any],
        run: Run,
        device: torch.device,
        max_seconds: float | None,
        processes: Processes,
        interrupts: _Interrupts,
    ) -> None:
        self.experiment, self.splits, self.run, self.device = experiment, splits, run, device
        self.max_seconds, self.processes, self._interrupts = max_seconds, processes, interrupts
        torch.manual_seed(experiment.seed)
        self.recognizer = Recognizer.for_data(experiment, splits.train).to(device)
        example = collate([splits.train[0]]).to(device)
        self.losses = processes.share(_Losses(self.recognizer), device, example)
        self.optimizer = _optimizer(experiment.optim, self.recognizer)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.sampler = BucketSampler(
            splits.train.lengths,
            experiment.optim.batch_size,
            seed=experiment.seed,
            rank=processes.rank,
            world_size=processes.world_size,
        )
        self.num_batches = len(self.sampler)
        self.position = Position()
        self.is_interrupted = False
        if processes.world_size > 1:
            self._seed()
        self._met = time.monotonic(), time.process_time()

    def _seed(self) -> None:
        """Gives each process random numbers of its own, by the seed and the epoch."""
        key = self.experiment.seed, self.position.epoch, self.processes.rank
        torch.manual_seed(int(stream("process", *key).integers(2**63)))

    def checkpoint(self) -> dict[str, Any]:
        """All that the rest of the training depends on."""
        is_cuda = self.device.type == "cuda"
        rng = {
            "host": torch.get_rng_state(),
            "device": torch.cuda.get_rng_state(self.device) if is_cuda else None,
        }
        return {
            "experiment": to_dict(self.experiment),
            "height": self.recognizer.height,
            "network": self.recognizer.network.state_dict(),
            "criterion": self.recognizer.criterion.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "position": asdict(self.position),
            "rng": self.processes.gather(rng),
        }

    def restore(self, content: dict[str, Any]) -> bool:
        """Goes back to a checkpoint; returns whether the training goes on with the same bits."""
        self.recognizer.network.load_state_dict(content["network"])
        self.recognizer.criterion.load_state_dict(content["criterion"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.position = Position.of_dict(content["position"])
        self._met = time.monotonic(), time.process_time()
        if len(content["rng"]) != self.processes.world_size:
            self._seed()
            return False
        rng = content["rng"][self.processes.rank]
        torch.set_rng_state(rng["host"])
        if rng["device"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(rng["device"], self.device)
        return True

    def save(self, name: str, content: dict[str, Any]) -> None:
        """Writes a file, once for all processes."""
        if self.processes.is_first:
            self.run.save(name, content)

    def is_over(self) -> bool:
        """Whether the time is."""
        return self.max_seconds is not None and self.position.seconds >= self.max_seconds

    def set_rates(self) -> None:
        """Sets the learning rates of a step."""
        settings, at = self.experiment.optim, self.position
        steps = at.epoch * self.num_batches + at.batches
        progress = steps / (settings.epochs * self.num_batches)
        if self.max_seconds is not None:
            # On a slow machine the schedule ends with the time.
            progress = max(progress, at.seconds / self.max_seconds)
        factor = _factor(settings, at.epoch, progress)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def rate(self) -> float:
        """The learning rate of the network."""
        return float(self.optimizer.param_groups[0]["lr"])

    def meet(
        self, sums: Sums, *, in_epoch: bool = False, is_bad: bool = False
    ) -> tuple[Sums, bool]:
        """Adds up over all processes: sums, the time since they met last, and who wants to stop.

        Args:
            sums: Those of this process.
            in_epoch: Whether the time is that of a batch of the epoch.
            is_bad: Whether something was not finite in this process.

        Returns:
            The sums of all, and whether something was not finite in any.
        """
        before, self._met = self._met, (time.monotonic(), time.process_time())
        seconds, cpu_seconds = (now - then for now, then in zip(self._met, before, strict=True))
        seconds, cpu_seconds, interrupts, bad, *numbers = self.processes.sum(
            [
                seconds if self.processes.is_first else 0.0,
                cpu_seconds,
                self._interrupts.asked,
                is_bad,
                *sums.numbers(),
            ]
        )
        at = self.position
        at.seconds, at.cpu_seconds = at.seconds + seconds, at.cpu_seconds + cpu_seconds
        if in_epoch:
            at.epoch_seconds += seconds
            at.epoch_cpu_seconds += cpu_seconds
        self.is_interrupted = interrupts > 0
        return Sums.of_numbers(numbers), bad > 0

    def step(self, batch: Batch, whole: list[Key]) -> None:
        """Learns from a batch, of which this process has a part."""
        losses, emissions, lengths = self.losses(batch.to(self.device))
        self.optimizer.zero_grad()
        # Gradients are the mean over processes, whose parts may differ in size.
        (losses.sum() / (len(whole) / self.processes.world_size)).backward()
        norm = torch.nn.utils.clip_grad_norm_(
            self.recognizer.parameters(), self.experiment.optim.max_grad_norm
        )
        done = Sums()
        is_bad = not bool(losses.isfinite().all() and norm.isfinite())
        if not is_bad:
            texts = self.recognizer.transcribe(emissions.detach(), lengths)
            done.add(losses, batch.texts, texts)
        done, is_bad = self.meet(done, in_epoch=True, is_bad=is_bad)
        if is_bad:
            self._give_up(whole, losses, norm.item())
        self.optimizer.step()
        self.position.sums += done
        self.position.batches += 1

    def _give_up(self, whole: list[Key], losses: Tensor, norm: float) -> None:
        joint = torch.empty(len(whole), dtype=losses.dtype)
        for rank, part in enumerate(self.processes.gather(losses.detach().cpu())):
            joint[rank :: self.processes.world_size] = part
        batch = collate([self.splits.train[key] for key in whole])
        self.save(BAD_BATCH, {**vars(batch), "losses": joint, "grad_norm": norm})
        self.processes.wait()
        finite = joint.isfinite().tolist()
        bad = [name for name, is_finite in zip(batch.ids, finite, strict=True) if not is_finite]
        what = f"the loss of {', '.join(bad)} is not" if bad else f"the gradient's norm is {norm}"
        raise TrainingError(
            f"train: losses and gradients must be finite, but in epoch {self.position.epoch + 1}, "
            f"batch {self.position.batches + 1}, {what}; the batch is in "
            f"{str(self.run.path / BAD_BATCH)!r}, try a lower optim.learning_rate"
        )

    def run_epoch(self, reporter: Reporter) -> None:
        """Does the batches that are left of an epoch, unless it is interrupted or time is over."""
        at = self.position
        self.sampler.set_epoch(at.epoch, at.batches)
        self.recognizer.train()
        loader = _loader(self.splits.train, self.sampler)
        for batch, whole in zip(loader, self.sampler.whole_batches(), strict=True):
            self.set_rates()
            self.step(batch, whole)
            reporter.step(at, self.experiment.optim.epochs, self.num_batches, self.rate())
            if self.is_interrupted or self.is_over():
                break

    def validate(self) -> Sums:
        """The sums of the validation data, unless it is interrupted."""
        sums, dataset, processes = Sums(), self.splits.validation, self.processes
        batches = _fixed_batches(dataset, self.experiment.optim.batch_size)
        # Whole batches go round, and processes meet after each: some may have none in the last.
        of_this = batches[processes.rank :: processes.world_size]
        found = _outputs(self.recognizer, dataset, of_this, self.device)
        for _ in range(0, len(batches), processes.world_size):
            part = Sums()
            for batch, emissions, lengths in itertools.islice(found, 1):
                with torch.no_grad():
                    losses = self.recognizer.loss(emissions, lengths, batch)
                texts = self.recognizer.transcribe(emissions, lengths)
                part.add(losses, batch.texts, texts)
            sums += self.meet(part)[0]
            if self.is_interrupted:
                break
        return sums

    def end_epoch(self, validation: Sums) -> bool:
        """Saves the numbers and checkpoints of an epoch; returns whether it is the best so far."""
        at = self.position
        numbers: dict[str, float] = {
            "epoch": at.epoch + 1,
            "steps": at.epoch * self.num_batches + at.batches,
            "learning_rate": self.rate(),
            **at.sums.means("train"),
            **validation.means("validation"),
            "epoch_seconds": round(at.epoch_seconds, 3),
            "epoch_cpu_seconds": round(at.epoch_cpu_seconds, 3),
            "seconds": round(at.seconds, 3),
            "cpu_seconds": round(at.cpu_seconds, 3),
        }
        is_best = numbers["validation_cer"] < at.best_cer
        at.best_cer = min(at.best_cer, numbers["validation_cer"])
        at.history.append(numbers)
        at.epoch, at.batches, at.sums = at.epoch + 1, 0, Sums()
        at.epoch_seconds = at.epoch_cpu_seconds = 0.0
        content = self.checkpoint()
        if is_best:
            self.save(BEST, content)
        # The last checkpoint comes last: a run that is killed before it repeats the epoch.
        if self.processes.is_first:
            self.run.save_metrics(at.history)
        self.save(LAST, content)
        self.meet(Sums())  # the time that files took is not that of the next epoch
        return is_best


def _fixed_batches(dataset: Dataset, batch_size: int) -> list[list[Key]]:
    """All examples of a data set, from long to short."""
    return list(BucketSampler(dataset.lengths, batch_size, shuffle=False))


def _loader(dataset: Dataset, batches: Iterable[list[Key]]) -> Iterable[Batch]:
    # With a generator of its own: that of torch is for dropout, and an iterator would advance it.
    return DataLoader(
        dataset, batch_sampler=batches, collate_fn=collate, generator=torch.Generator()
    )


@torch.no_grad()
def _outputs(
    recognizer: Recognizer,
    dataset: Dataset,
    batches: Iterable[list[Key]],
    device: torch.device,
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Batches of a data set with their emissions and the lengths of these."""
    recognizer.eval()
    for batch in _loader(dataset, batches):
        yield batch, *recognizer(batch.to(device))


def outputs(
    recognizer: Recognizer, dataset: Dataset, *, batch_size: int = 32, device: str = "cpu"
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Applies a recogniser to a data set, without gradients.

    Args:
        recognizer: The recogniser, on the device.
        dataset: The data, which come from long to short.
        batch_size: The number of examples of a batch.
        device: Where the network is.

    Returns:
        Batches with their emissions and the lengths of these.
    """
    batches = _fixed_batches(dataset, batch_size)
    return _outputs(recognizer, dataset, batches, check_device("outputs", device))


def train(
    experiment: Experiment,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    max_seconds: float | None = None,
    device: str = "cpu",
    threads: int = 1,
    quiet: bool = False,
    command: str | None = None,
) -> Result:
    """Trains a recogniser.

    The folder gets the settings, ``metrics.jsonl`` with the numbers of each epoch, and the
    checkpoints ``best.pt`` (lowest CER on the validation data) and ``last.pt``. With the same
    settings, machine, number of threads and number of processes a training gives the same bits,
    whether it was interrupted or not. Ctrl-C finishes the step, saves ``last.pt`` and returns.

    Started by ``torchrun``, all processes together train one recogniser: each takes its part of
    each batch, the first one writes and prints, and what stops one stops all.

    Args:
        experiment: The settings.
        out: The folder of the run, which all processes must see.
        resume: Whether to go on from ``last.pt``; only the number of epochs may differ. The number
            of processes may, but then the bits do too.
        max_seconds: The time for the training in all its parts. At its end the epoch is cut short
            and validated. A one-cycle schedule ends with it, so that the result depends on the
            speed of the machine.
        device: Where the network is; graphs are on the host. Of several processes, ``"cuda"`` gives
            each a GPU of its own.
        threads: How many threads torch uses in each process; one is best for small networks.
        quiet: Whether to print nothing.
        command: The command line, to be saved with the run.

    Returns:
        What it came to, the same in all processes.

    Raises:
        ValueError: If there is a run in the folder already, or none to resume, or another one; if
            there is no time or no such device; or if the batch size is not a multiple of the number
            of processes.
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
    place = check_device("train", device)
    run = Run(out)
    saved = _saved(run, experiment) if resume else None
    if not resume and (run.path / LAST).exists():
        raise ValueError(
            f"train: the folder must be free, but {str(run.path)!r} has a run; resume it or choose "
            "another folder"
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_threads(threads))
        processes = join(place)
        interrupts = stack.enter_context(_Interrupts())
        reporter = stack.enter_context(Reporter(quiet or not processes.is_first))
        count = processes.world_size
        if experiment.optim.batch_size % count:
            raise ValueError(
                "train: optim.batch_size must be a multiple of the number of processes, "
                f"{count}, but it is {experiment.optim.batch_size}"
            )
        training = _Training(
            experiment, load_data(experiment), run, place, max_seconds, processes, interrupts
        )
        if saved is not None and not training.restore(saved):
            reporter.say(
                f"the run had {len(saved['rng'])} processes and goes on with {count}: its numbers "
                "will not be those of a run without interruption"
            )
        at, epochs = training.position, experiment.optim.epochs
        add_to_board = None
        if processes.is_first:
            run.save_settings(experiment, training.recognizer)
            environment = describe_environment(
                command=command,
                device=device,
                threads=threads,
                world_size=count,
                max_seconds=max_seconds,
            )
            run.save_environment(environment, is_first=not resume)
            add_to_board = stack.enter_context(open_board(run.path / BOARD, at.epoch))
        training.meet(Sums())  # the time until here is not that of an epoch
        num_parameters = sum(parameter.numel() for parameter in training.recognizer.parameters())
        reporter.say(
            f"{len(training.splits.train)} training examples, {num_parameters} parameters"
            + (f", {count} processes" if count > 1 else "")
        )
        while at.epoch < epochs and not training.is_over():
            training.run_epoch(reporter)
            validation = Sums() if training.is_interrupted else training.validate()
            if training.is_interrupted:
                training.save(LAST, training.checkpoint())
                processes.wait()
                reporter.say(f"interrupted; resume the run in {str(run.path)!r}")
                break
            is_best = training.end_epoch(validation)
            reporter.epoch(at.history[-1], epochs, is_best)
            if add_to_board is not None:
                add_to_board(at.history[-1])
        else:
            if at.epoch < epochs:
                reporter.say(f"stopped after {max_seconds:g} s, as was asked")
    return Result(
        at.epoch,
        at.best_cer,
        tuple(at.history),
        finished=at.epoch >= epochs,
        interrupted=training.is_interrupted and at.epoch < epochs,
    )


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
        ValueError: If there is no such run, checkpoint, split or device.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.experiment import override
    >>> from arcgrad.recipes.train import evaluate_run, train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=4", "optim.epochs=1"]
    >>> _ = train(override(find("demo"), sizes), "run", quiet=True)
    >>> len(evaluate_run("run").examples)
    4
    """
    check_split("evaluate_run", split)
    check_device("evaluate_run", device)
    experiment, recognizer = load_run(path, checkpoint)
    return evaluate_recognizer(
        recognizer,
        load_split(experiment, split),
        batch_size=experiment.optim.batch_size,
        device=device,
        threads=threads,
    )


def evaluate_recognizer(
    recognizer: Recognizer,
    dataset: Dataset,
    *,
    batch_size: int = 32,
    device: str = "cpu",
    threads: int = 1,
) -> Evaluation:
    """The error rates of a recogniser.

    Args:
        recognizer: The recogniser.
        dataset: The data.
        batch_size: The number of examples of a batch.
        device: Where the network is to be.
        threads: How many threads torch uses.

    Returns:
        The errors, with an entry for each example in the order of the data.
    """
    found: dict[str, str] = {}
    with torch_threads(threads):
        for batch, emissions, lengths in outputs(
            recognizer.to(device), dataset, batch_size=batch_size, device=device
        ):
            texts = recognizer.transcribe(emissions, lengths)
            found.update(zip(batch.ids, texts, strict=True))
    return evaluate(dataset.texts, [found[name] for name in dataset.ids])


def check_split(op: str, split: str) -> None:
    """Raises if there is no such split."""
    if split not in SPLITS:
        raise ValueError(
            f"{op}: the split must be 'train', 'validation' or 'test', but it is {split!r}"
        )


def load_split(experiment: Experiment, split: str) -> Dataset:
    """The training, validation or test data of an experiment.

    Raises:
        ValueError: If there is no such split, or the data cannot be loaded.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.train import load_split
    >>> load_split(find("demo"), "exam")
    Traceback (most recent call last):
    ...
    ValueError: load_split: the split must be 'train', 'validation' or 'test', but it is 'exam'
    """
    check_split("load_split", split)
    dataset: Dataset = getattr(load_data(experiment), split)
    return dataset
