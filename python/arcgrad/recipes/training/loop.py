"""The training loop of all experiments: steps, validation, checkpoints, interruption."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from arcgrad.recipes.data import Batch, BucketSampler, Key, Splits, collate, load_data
from arcgrad.recipes.data._random import stream
from arcgrad.recipes.experiments import Experiment, from_dict, to_dict
from arcgrad.recipes.inference import find_device, torch_threads
from arcgrad.recipes.inference.emissions import batch_emissions, fixed_batches, load_batches
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import BAD_BATCH, BEST, EXPERIMENT, LAST, TENSORBOARD, Run, fits

from .environment import describe_environment
from .optimizer import make_optimizer, rate_factor
from .processes import Processes, join
from .progress import EpochMetrics, Position, Reporter
from .tensorboard import open_writer

__all__ = ["Result", "TrainingError", "train"]


class TrainingError(RuntimeError):
    """A training that cannot continue."""


@dataclass(frozen=True)
class Result:
    """The result of a training.

    Attributes:
        epochs: The number of completed epochs.
        best_cer: The lowest CER on the validation data, in percent.
        history: The metrics of each epoch, as in ``metrics.jsonl``.
        finished: Whether all epochs are completed; otherwise the run can be resumed.
        interrupted: Whether Ctrl-C ended the training.
    """

    epochs: int
    best_cer: float
    history: tuple[dict[str, float], ...]
    finished: bool
    interrupted: bool = False


class _Interrupts:
    """Records the first Ctrl-C, so that the step is completed; the second raises."""

    def __init__(self) -> None:
        self.received = False

    def _receive(self, *_: object) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True

    def __enter__(self) -> _Interrupts:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def _saved(run: Run, experiment: Experiment) -> dict[str, Any]:
    """Return the last checkpoint of a run; the experiment may only have more or fewer epochs."""
    content = run.load("train", LAST)
    with fits("train", run.path / LAST):
        run.check_digests("train", content)
        before = from_dict(content["experiment"], source=run.path / LAST)
    optim = replace(before.optim, epochs=experiment.optim.epochs)
    if replace(before, optim=optim, description=experiment.description) != experiment:
        raise ValueError(
            "train: a run must be resumed with its own settings, but the settings in "
            f"{str(run.path / EXPERIMENT)!r} differ"
        )
    return content


class _Losses(nn.Module):
    """The network and the loss as one module, for ``DistributedDataParallel``."""

    def __init__(self, recognizer: Recognizer) -> None:
        super().__init__()
        self.recognizer = recognizer

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        emissions, lengths = self.recognizer(batch)
        return self.recognizer.loss(emissions, lengths, batch), emissions, lengths


class _Training:
    """The state of a training, with its steps, validation and checkpoints.

    All processes take the same steps and have the same position. An all-reduce after each batch
    makes them agree on the time, on Ctrl-C and on whether a loss was not finite.
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
        self.losses = processes.data_parallel(_Losses(self.recognizer), device, example)
        self.optimizer = make_optimizer(experiment.optim, self.recognizer)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.sampler = BucketSampler(
            splits.train.lengths,
            experiment.optim.batch_size,
            seed=experiment.seed,
            rank=processes.rank,
            world_size=processes.world_size,
        )
        self.num_batches = len(self.sampler)
        self.validation_batches = fixed_batches(splits.validation, experiment.optim.batch_size)
        self.position = Position()
        self.is_interrupted = False
        self.digests: dict[str, str] = {}
        if processes.world_size > 1:
            self._seed()
        self._times = time.monotonic(), time.process_time()

    def _seed(self) -> None:
        """Seed the dropout of each process differently, by the seed and the epoch."""
        key = self.experiment.seed, self.position.epoch, self.processes.rank
        torch.manual_seed(int(stream("process", *key).integers(2**63)))

    def checkpoint(self) -> dict[str, Any]:
        """Return the state that the rest of the training depends on."""
        is_cuda = self.device.type == "cuda"
        rng = {
            "host": torch.get_rng_state(),
            "device": torch.cuda.get_rng_state(self.device) if is_cuda else None,
        }
        optimizer = self.optimizer.state_dict()
        return {
            "experiment": to_dict(self.experiment),
            "files": self.digests,
            "height": self.recognizer.height,
            "network": self.recognizer.network.state_dict(),
            "criterion": self.recognizer.criterion.state_dict(),
            # Keys of files are texts.
            "optimizer": {
                **optimizer,
                "state": {str(key): state for key, state in optimizer["state"].items()},
            },
            "position": asdict(self.position),
            "rng": self.processes.gather(rng),
        }

    def restore(self, content: dict[str, Any]) -> bool:
        """Restore a checkpoint; return whether the training continues bit by bit."""
        with tempfile.TemporaryDirectory() as folder:
            self.recognizer.save(folder)
            if Run(folder).digests() != content["files"]:
                raise ValueError(
                    "train: a run must be resumed with the data that it was started with, but "
                    f"their texts give other tokens than those in {str(self.run.path)!r}"
                )
        self.recognizer.load_parameters(content)
        optimizer = content["optimizer"]
        try:
            state = {int(key): state for key, state in optimizer["state"].items()}
            self.optimizer.load_state_dict({**optimizer, "state": state})
        except ValueError as error:
            raise RuntimeError(f"the state of the optimiser: {error}") from None
        self.position = Position.from_dict(content["position"])
        self._times = time.monotonic(), time.process_time()
        if len(content["rng"]) != self.processes.world_size:
            self._seed()
            return False
        rng = content["rng"][self.processes.rank]
        torch.set_rng_state(rng["host"])
        if rng["device"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(rng["device"], self.device)
        return True

    def save(self, name: str, content: dict[str, Any]) -> None:
        """Write a file, from the first process only."""
        if self.processes.is_first:
            self.run.save(name, content)

    def is_over(self) -> bool:
        """Return whether the time limit is reached."""
        return self.max_seconds is not None and self.position.seconds >= self.max_seconds

    def set_rates(self) -> None:
        """Set the learning rates of a step."""
        settings, at = self.experiment.optim, self.position
        steps = at.epoch * self.num_batches + at.batches
        progress = steps / (settings.epochs * self.num_batches)
        if self.max_seconds is not None:
            # The schedule ends at the time limit, also on a slow machine.
            progress = max(progress, at.seconds / self.max_seconds)
        factor = rate_factor(settings, at.epoch, progress)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def rate(self) -> float:
        """Return the learning rate of the network."""
        return float(self.optimizer.param_groups[0]["lr"])

    def all_reduce(
        self, metrics: EpochMetrics, *, in_epoch: bool = False, is_bad: bool = False
    ) -> tuple[EpochMetrics, bool]:
        """Sum over all processes: metrics, the time since the last call, interrupts and failures.

        Args:
            metrics: The metrics of this process.
            in_epoch: Whether the time belongs to a batch of the epoch.
            is_bad: Whether this process found a number that is not finite.

        Returns:
            The metrics of all processes, and whether any found a number that is not finite.
        """
        before, self._times = self._times, (time.monotonic(), time.process_time())
        seconds, cpu_seconds = (now - then for now, then in zip(self._times, before, strict=True))
        seconds, cpu_seconds, interrupts, bad, *numbers = self.processes.all_reduce(
            [
                seconds if self.processes.is_first else 0.0,
                cpu_seconds,
                self._interrupts.received,
                is_bad,
                *metrics.to_list(),
            ]
        )
        at = self.position
        at.seconds, at.cpu_seconds = at.seconds + seconds, at.cpu_seconds + cpu_seconds
        if in_epoch:
            at.epoch_seconds += seconds
            at.epoch_cpu_seconds += cpu_seconds
        self.is_interrupted = interrupts > 0
        return EpochMetrics.from_list(numbers), bad > 0

    def step(self, batch: Batch, whole: list[Key]) -> None:
        """Take a step on this process's part of a whole batch."""
        losses, emissions, lengths = self.losses(batch.to(self.device))
        self.optimizer.zero_grad()
        # The gradient is averaged over processes, whose parts may differ in size.
        (losses.sum() / (len(whole) / self.processes.world_size)).backward()
        norm = torch.nn.utils.clip_grad_norm_(
            self.recognizer.parameters(), self.experiment.optim.max_grad_norm or math.inf
        )
        metrics = EpochMetrics()
        is_bad = not bool(losses.isfinite().all() and norm.isfinite())
        if not is_bad:
            texts = self.recognizer.transcribe(emissions.detach(), lengths)
            metrics.add(losses, batch.texts, texts)
        metrics, is_bad = self.all_reduce(metrics, in_epoch=True, is_bad=is_bad)
        if is_bad:
            self._give_up(whole, losses, norm.item())
        self.optimizer.step()
        self.position.metrics += metrics
        self.position.batches += 1

    def _give_up(self, whole: list[Key], losses: Tensor, norm: float) -> None:
        """Save a batch whose loss or gradient is not finite, and raise."""
        joint = torch.empty(len(whole), dtype=losses.dtype)
        for rank, part in enumerate(self.processes.gather(losses.detach().cpu())):
            joint[rank :: self.processes.world_size] = part
        batch = collate([self.splits.train[key] for key in whole])
        self.save(BAD_BATCH, {**vars(batch), "losses": joint, "grad_norm": norm})
        self.processes.barrier()
        finite = joint.isfinite().tolist()
        bad = [name for name, is_finite in zip(batch.ids, finite, strict=True) if not is_finite]
        what = f"the loss of {', '.join(bad)} is not" if bad else f"the gradient's norm is {norm}"
        raise TrainingError(
            f"train: losses and gradients must be finite, but in epoch {self.position.epoch + 1}, "
            f"batch {self.position.batches + 1}, {what}; the batch is in "
            f"{str(self.run.path / BAD_BATCH)!r}, try a lower optim.learning_rate"
        )

    def run_epoch(self, reporter: Reporter) -> None:
        """Train on the remaining batches of an epoch, until an interrupt or the time limit."""
        at = self.position
        self.sampler.set_epoch(at.epoch, at.batches)
        self.recognizer.train()
        wholes = self.sampler.whole_batches()
        batches = load_batches(self.splits.train, [self.sampler.part(whole) for whole in wholes])
        for batch, whole in zip(batches, wholes, strict=True):
            self.set_rates()
            self.step(batch, whole)
            reporter.step(at, self.experiment.optim.epochs, self.num_batches, self.rate())
            if self.is_interrupted or self.is_over():
                break

    def validate(self) -> EpochMetrics:
        """Return the metrics of the validation data; incomplete after an interrupt."""
        metrics, batches, processes = EpochMetrics(), self.validation_batches, self.processes
        # Processes take whole batches in turn and all-reduce after each turn. In the last turn some
        # may have no batch.
        own = batches[processes.rank :: processes.world_size]
        found = batch_emissions(self.recognizer, self.splits.validation, own)
        for _ in range(0, len(batches), processes.world_size):
            part = EpochMetrics()
            for batch, emissions, lengths in itertools.islice(found, 1):
                with torch.no_grad():
                    losses = self.recognizer.loss(emissions, lengths, batch)
                texts = self.recognizer.transcribe(emissions, lengths)
                part.add(losses, batch.texts, texts)
            metrics += self.all_reduce(part)[0]
            if self.is_interrupted:
                break
        return metrics

    def end_epoch(self, validation: EpochMetrics) -> bool:
        """Save the metrics and checkpoints of an epoch; return whether it is the best so far."""
        at = self.position
        numbers: dict[str, float] = {
            "epoch": at.epoch + 1,
            "steps": at.epoch * self.num_batches + at.batches,
            "learning_rate": self.rate(),
            **at.metrics.means("train"),
            **validation.means("validation"),
            "epoch_seconds": round(at.epoch_seconds, 3),
            "epoch_cpu_seconds": round(at.epoch_cpu_seconds, 3),
            "seconds": round(at.seconds, 3),
            "cpu_seconds": round(at.cpu_seconds, 3),
        }
        is_best = numbers["validation_cer"] < at.best_cer
        at.best_cer = min(at.best_cer, numbers["validation_cer"])
        at.history.append(numbers)
        at.epoch, at.batches, at.metrics = at.epoch + 1, 0, EpochMetrics()
        at.epoch_seconds = at.epoch_cpu_seconds = 0.0
        content = self.checkpoint()
        if is_best:
            self.save(BEST, content)
        # LAST is written last: a run that is killed before this point repeats the epoch.
        if self.processes.is_first:
            self.run.save_metrics(at.history)
        self.save(LAST, content)
        self.all_reduce(EpochMetrics())  # the next epoch must not include the time for files
        return is_best


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
    """Train a recogniser.

    The folder gets the settings, the metrics of each epoch in ``metrics.jsonl``, and the
    checkpoints ``best.safetensors`` (lowest CER on the validation data) and ``last.safetensors``.
    With the same settings, machine, number of threads and number of processes, results are equal
    bit by bit, also after an interruption. Ctrl-C completes the step, saves ``last.safetensors``
    and returns.

    Under ``torchrun``, all processes train one recogniser: each takes its part of each batch, and
    only the first one writes and prints. An error or interrupt in one process stops all of them.

    Args:
        experiment: The settings.
        out: The folder of the run, which all processes must share.
        resume: Whether to continue from ``last.safetensors``. Only the number of epochs may differ,
            and the number of processes, which changes the results.
        max_seconds: The time limit over all parts of the training. When it is reached, the epoch is
            cut short and validated. A one-cycle schedule ends at the limit, so the result depends
            on the speed of the machine.
        device: The device of the network; graphs stay on the host. With several processes,
            ``"cuda"`` is one GPU for each.
        threads: The number of threads of torch per process; one is best for small networks.
        quiet: Whether to print nothing.
        command: The command line, which is saved with the run.

    Returns:
        The result, the same in all processes.

    Raises:
        ValueError: If the folder already has a run, or has no such run to resume; the time limit or
            the device is invalid; or the batch size is not a multiple of the number of processes.
        TrainingError: If a loss is NaN; the batch is saved as ``bad_batch.safetensors``.

    >>> from arcgrad.recipes.experiments import find, override
    >>> from arcgrad.recipes.training import train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=4", "optim.epochs=1"]
    >>> result = train(override(find("demo"), sizes), "run", quiet=True)
    >>> result.epochs, result.finished
    (1, True)
    """
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"train: max_seconds must be positive, but it is {max_seconds}")
    target = find_device("train", device)
    run = Run(out)
    saved = _saved(run, experiment) if resume else None
    if not resume:
        run.refuse_pickle("train", LAST)
        if (run.path / LAST).exists():
            raise ValueError(
                f"train: the folder must not have a run, but {str(run.path)!r} has one; resume it "
                "or choose another folder"
            )
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_threads(threads))
        processes = join(target)
        interrupts = stack.enter_context(_Interrupts())
        reporter = stack.enter_context(Reporter(quiet or not processes.is_first))
        count = processes.world_size
        if experiment.optim.batch_size % count:
            raise ValueError(
                "train: optim.batch_size must be a multiple of the number of processes, "
                f"{count}, but it is {experiment.optim.batch_size}"
            )
        training = _Training(
            experiment, load_data(experiment), run, target, max_seconds, processes, interrupts
        )
        if saved is not None:
            with fits("train", run.path / LAST):
                is_exact = training.restore(saved)
            if not is_exact:
                reporter.say(
                    f"the run had {len(saved['rng'])} processes and continues with {count}: its "
                    "results will differ from a run without interruption"
                )
        at, epochs = training.position, experiment.optim.epochs
        log_metrics = None
        if processes.is_first:
            run.save_settings(experiment)
            if saved is None:
                training.recognizer.save(run.path)
            training.digests = run.digests()
            environment = describe_environment(
                command=command,
                device=device,
                threads=threads,
                world_size=count,
                max_seconds=max_seconds,
            )
            run.save_environment(environment, is_first=not resume)
            log_metrics = stack.enter_context(open_writer(run.path / TENSORBOARD, at.epoch))
        training.all_reduce(EpochMetrics())  # the first epoch must not include the setup time
        num_parameters = sum(parameter.numel() for parameter in training.recognizer.parameters())
        reporter.say(
            f"{len(training.splits.train)} training examples, {num_parameters} parameters"
            + (f", {count} processes" if count > 1 else "")
        )
        while at.epoch < epochs and not training.is_over():
            training.run_epoch(reporter)
            validation = EpochMetrics() if training.is_interrupted else training.validate()
            if training.is_interrupted:
                training.save(LAST, training.checkpoint())
                processes.barrier()
                reporter.say(f"interrupted; resume the run in {str(run.path)!r}")
                break
            is_best = training.end_epoch(validation)
            reporter.epoch(at.history[-1], epochs, is_best)
            if log_metrics is not None:
                log_metrics(at.history[-1])
        else:
            if at.epoch < epochs:
                reporter.say(f"stopped at the time limit of {max_seconds:g} s")
    return Result(
        at.epoch,
        at.best_cer,
        tuple(at.history),
        finished=at.epoch >= epochs,
        interrupted=training.is_interrupted and at.epoch < epochs,
    )
