"""The loop of all trainings: steps, validation, checkpoints, interruption."""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from arcgrad.recipes.data import Batch, BucketSampler, Key, Splits, collate
from arcgrad.recipes.data._random import stream
from arcgrad.recipes.experiments import Experiment, to_dict
from arcgrad.recipes.inference.emissions import batch_emissions, fixed_batches, load_batches
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import BAD_BATCH, BEST, LAST, Run

from .optimizer import make_optimizer, rate_factor
from .processes import Processes
from .progress import EpochMetrics, Position, Reporter
from .signals import Signals

__all__ = ["Training", "TrainingError"]


class TrainingError(RuntimeError):
    """A training that cannot continue."""

    is_user_error = True


class _Losses(nn.Module):
    """The network and the loss as one module, for ``DistributedDataParallel``."""

    def __init__(self, recognizer: Recognizer) -> None:
        super().__init__()
        self.recognizer = recognizer

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        emissions, lengths = self.recognizer(batch)
        return self.recognizer.loss(emissions, lengths, batch), emissions, lengths


class Training:
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
        *,
        processes: Processes,
        signals: Signals,
        save_every: float | None,
        workers: int,
    ) -> None:
        self.experiment, self.splits, self.run, self.device = experiment, splits, run, device
        self.max_seconds, self.processes, self._signals = max_seconds, processes, signals
        self.save_every, self._saved_at, self.workers = save_every, 0.0, workers
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
        self._saved_at = self.position.seconds
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
                bool(self._signals.received),
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
        losses, emissions, lengths = self.losses(batch.to(self.device, non_blocking=True))
        self.optimizer.zero_grad()
        # The mean over feasible examples. The gradient is averaged over processes, whose parts may
        # differ in size.
        is_feasible = ~losses.isinf()
        (count,) = self.processes.all_reduce([is_feasible.sum().item()])
        total = torch.where(is_feasible, losses, 0.0).sum()
        (total / (max(count, 1.0) / self.processes.world_size)).backward()
        norm = torch.nn.utils.clip_grad_norm_(
            self.recognizer.parameters(), self.experiment.optim.max_grad_norm or math.inf
        )
        metrics = EpochMetrics()
        is_bad = bool(losses.isnan().any()) or not bool(norm.isfinite())
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
        for number, part in enumerate(self.processes.gather(losses.detach().cpu())):
            joint[number :: self.processes.world_size] = part
        batch = collate([self.splits.train[key] for key in whole])
        self.save(BAD_BATCH, {**vars(batch), "losses": joint, "grad_norm": norm})
        self.processes.barrier()
        bad = [name for name, is_nan in zip(batch.ids, joint.isnan(), strict=True) if is_nan]
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
        parts = [self.sampler.part(whole) for whole in wholes]
        batches = load_batches(self.splits.train, parts, self.workers, self.device)
        for batch, whole in zip(batches, wholes, strict=True):
            self.set_rates()
            self.step(batch, whole)
            reporter.step(at, self.rate())
            if self.is_interrupted or self.is_over():
                break
            self._save_at_times()
        if at.metrics.examples == at.metrics.infeasible > 0 and not self.is_interrupted:
            self._refuse_infeasible()

    def _save_at_times(self) -> None:
        """Save the last checkpoint within an epoch, if it is time; all processes agree on it."""
        if self.save_every is None or self.position.batches == self.num_batches:
            return
        if self.position.seconds - self._saved_at >= self.save_every:
            self.save(LAST, self.checkpoint())
            self._saved_at = self.position.seconds

    def _refuse_infeasible(self) -> None:
        """Raise, since no target fits into its frames."""
        data = self.splits.train
        longest = max(range(len(data)), key=lambda index: len(data.texts[index]))
        example = data[longest]
        (frames,) = self.recognizer.network.output_lengths([example.length]).tolist()  # type: ignore[operator]
        reason = self.recognizer.explain_infeasible(collate([example]))
        raise TrainingError(
            f"train: targets must fit into the frames of the network, but in epoch "
            f"{self.position.epoch + 1} none does; the longest, {example.text[:80]!r} of "
            f"{example.id}, has {len(example.target)} tokens in {frames} frames"
            + (f": {reason}" if reason else "")
            + "; lower model.subsampling or the limits of frames in loss"
        )

    def validate(self, reporter: Reporter) -> EpochMetrics:
        """Return the metrics of the validation data; incomplete after an interrupt."""
        metrics, batches, processes = EpochMetrics(), self.validation_batches, self.processes
        # Processes take whole batches in turn and all-reduce after each turn. In the last turn some
        # may have no batch.
        own = batches[processes.rank :: processes.world_size]
        found = batch_emissions(self.recognizer, self.splits.validation, own, self.workers)
        for done in range(0, len(batches), processes.world_size):
            part = EpochMetrics()
            for batch, emissions, lengths in itertools.islice(found, 1):
                with torch.no_grad():
                    losses = self.recognizer.loss(emissions, lengths, batch)
                texts = self.recognizer.transcribe(emissions, lengths)
                part.add(losses, batch.texts, texts)
            metrics += self.all_reduce(part)[0]
            reporter.validate(self.position, done // processes.world_size + 1)
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
        self._saved_at = at.seconds
        self.all_reduce(EpochMetrics())  # the next epoch must not include the time for files
        return is_best
