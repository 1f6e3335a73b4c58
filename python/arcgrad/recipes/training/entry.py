"""The function that trains: checks, the folder of the run, and its loop over epochs."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import Any

from arcgrad.recipes.data import load_data
from arcgrad.recipes.experiments import Experiment, from_dict
from arcgrad.recipes.inference import find_device, torch_threads
from arcgrad.recipes.inference.emissions import default_workers
from arcgrad.recipes.run import EXPERIMENT, LAST, TENSORBOARD, Run, fits

from .environment import describe_environment
from .lock import lock
from .loop import Training
from .processes import join, rank
from .progress import EpochMetrics, Reporter
from .signals import Signals
from .tensorboard import open_writer

__all__ = ["Result", "train"]

# The number of examples that a line names.
NUM_NAMED = 5


@dataclass(frozen=True)
class Result:
    """The result of a training.

    Attributes:
        epochs: The number of completed epochs.
        best_cer: The lowest CER on the validation data, in percent.
        history: The metrics of each epoch, as in ``metrics.jsonl``.
        finished: Whether all epochs are completed; otherwise the run can be resumed.
        interrupted: Whether a signal, such as that of Ctrl-C, ended the training.
        signal: The number of this signal.
    """

    epochs: int
    best_cer: float
    history: tuple[dict[str, float], ...]
    finished: bool
    interrupted: bool = False
    signal: int | None = None


def _saved(run: Run, experiment: Experiment) -> dict[str, Any]:
    """Return the last checkpoint of a run; the experiment may only have more or fewer epochs."""
    content = run.load("train", LAST)
    with fits("train", run.path / LAST):
        run.check_digests("train", content)
        before = _with_whole_path(from_dict(content["experiment"], source=run.path / LAST))
    optim = replace(before.optim, epochs=experiment.optim.epochs)
    if replace(before, optim=optim, description=experiment.description) != experiment:
        raise ValueError(
            "train: a run must be resumed with its own settings, but the settings in "
            f"{str(run.path / EXPERIMENT)!r} differ"
        )
    return content


def _with_whole_path(experiment: Experiment) -> Experiment:
    """Return the experiment with the absolute path of its data, which is valid in any folder."""
    path = experiment.data.path
    if path is None:
        return experiment
    return replace(experiment, data=replace(experiment.data, path=os.path.abspath(path)))


def _refuse_run(run: Run) -> None:
    """Raise if there is a run in its folder."""
    run.refuse_pickle("train", LAST)
    if (run.path / LAST).exists():
        raise ValueError(
            f"train: the folder must not have a run, but {str(run.path)!r} has one; resume it "
            "or choose another folder"
        )


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
    save_every: float | None = None,
    workers: int | None = None,
) -> Result:
    """Train a recogniser.

    The folder gets the settings, the metrics of each epoch in ``metrics.jsonl``, and the
    checkpoints ``best.safetensors`` (lowest CER on the validation data) and ``last.safetensors``.
    With the same settings, machine, number of threads and number of processes, results are equal
    bit by bit, also after an interruption. Ctrl-C, SIGTERM and SIGUSR1 complete the step, save
    ``last.safetensors`` and return. While a training runs, its folder has a lock against others.

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
        save_every: The seconds after which ``last.safetensors`` is saved within an epoch too; None
            to save it at the end of each epoch.
        workers: The number of processes that load the next batches, for each process of the
            training; it changes no result. None for one per idle processor, at most 4, if there are
            1000 examples or more.

    Returns:
        The result, the same in all processes.

    Raises:
        ValueError: If the folder already has a run, has no such run to resume, or is locked; a
            time or the device is invalid; or the batch size is not a multiple of the number of
            processes.
        TrainingError: If a loss is NaN; the batch is saved as ``bad_batch.safetensors``. Or if no
            target of an epoch fits into its frames.

    >>> from arcgrad.recipes.experiments import find, override
    >>> from arcgrad.recipes.training import train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=4", "optim.epochs=1"]
    >>> result = train(override(find("demo"), sizes), "run", quiet=True)
    >>> result.epochs, result.finished
    (1, True)
    """
    experiment = _with_whole_path(experiment)
    if workers is not None and workers < 0:
        raise ValueError(f"train: workers must not be negative, but they are {workers}")
    for name, seconds in (("max_seconds", max_seconds), ("save_every", save_every)):
        if seconds is not None and not seconds > 0:
            raise ValueError(f"train: {name} must be positive, but it is {seconds}")
    target = find_device("train", device)
    run = Run(out)
    with contextlib.ExitStack() as stack:
        if rank() == 0:
            if not resume:
                _refuse_run(run)
            elif not (run.path / LAST).exists():
                run.load("train", LAST)  # raises, before there is a folder
            stack.enter_context(lock(run.path))
        saved = _saved(run, experiment) if resume else None
        if not resume:
            _refuse_run(run)
        stack.enter_context(torch_threads(threads))
        processes = join(target)
        signals = stack.enter_context(Signals())
        count = processes.world_size
        if experiment.optim.batch_size % count:
            raise ValueError(
                "train: optim.batch_size must be a multiple of the number of processes, "
                f"{count}, but it is {experiment.optim.batch_size}"
            )
        splits = load_data(experiment)
        if workers is None:
            workers = default_workers(len(splits.train), count)
        training = Training(
            *(experiment, splits, run, target, max_seconds),
            processes=processes,
            signals=signals,
            save_every=save_every,
            workers=workers,
        )
        at, epochs = training.position, experiment.optim.epochs
        turns = -(-len(training.validation_batches) // count)
        reporter = stack.enter_context(
            Reporter(quiet or not processes.is_first, epochs, (training.num_batches, turns))
        )
        if saved is not None:
            with fits("train", run.path / LAST):
                is_exact = training.restore(saved)
            at = training.position
            if not is_exact:
                reporter.say(
                    f"the run had {len(saved['rng'])} processes and continues with {count}: its "
                    "results will differ from a run without interruption"
                )
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
            environment |= {"workers": workers, "left_out": list(splits.left_out)}
            run.save_environment(environment, is_first=not resume)
            log_metrics = stack.enter_context(open_writer(run.path / TENSORBOARD, at.epoch))
        training.all_reduce(EpochMetrics())  # the first epoch must not include the setup time
        num_parameters = sum(parameter.numel() for parameter in training.recognizer.parameters())
        reporter.say(
            f"{len(training.splits.train)} training examples, {num_parameters} parameters"
            + (f", {count} processes" if count > 1 else "")
        )
        if splits.left_out:
            reporter.say(
                f"left out {len(splits.left_out)} examples with missing or damaged files: "
                + ", ".join(splits.left_out[:NUM_NAMED])
                + (", ..." if len(splits.left_out) > NUM_NAMED else "")
            )
        while at.epoch < epochs and not training.is_over():
            training.run_epoch(reporter)
            validation = EpochMetrics()
            if not training.is_interrupted:
                validation = training.validate(reporter)
            if training.is_interrupted:
                training.save(LAST, training.checkpoint())
                processes.barrier()
                reporter.say(f"interrupted; resume the run in {str(run.path)!r}")
                break
            is_best = training.end_epoch(validation)
            reporter.epoch(at.history[-1], is_best)
            if log_metrics is not None:
                log_metrics(at.history[-1])
        else:
            if at.epoch < epochs:
                reporter.say(f"stopped at the time limit of {max_seconds:g} s")
        # The greatest, if processes got different signals.
        number = max(processes.gather(signals.received)) if training.is_interrupted else 0
    return Result(
        at.epoch,
        at.best_cer,
        tuple(at.history),
        finished=at.epoch >= epochs,
        interrupted=training.is_interrupted and at.epoch < epochs,
        signal=number or None,
    )
