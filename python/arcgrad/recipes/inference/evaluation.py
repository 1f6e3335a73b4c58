"""The error rates of a recogniser or of a run."""

from __future__ import annotations

import os

from arcgrad.recipes.data import Dataset, load_split
from arcgrad.recipes.metrics import Evaluation, evaluate
from arcgrad.recipes.recognizer import Recognizer

from .devices import load_run_on, torch_threads
from .emissions import dataset_emissions

__all__ = ["evaluate_recognizer", "evaluate_run"]


def evaluate_run(
    path: str | os.PathLike[str],
    split: str = "test",
    *,
    checkpoint: str = "best",
    device: str = "cpu",
    threads: int = 1,
) -> Evaluation:
    """Return the error rates of a run.

    Args:
        path: The folder of the run.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        checkpoint: ``"best"`` or ``"last"``.
        device: The device of the network.
        threads: The number of threads of torch.

    Returns:
        The errors, with an entry for each example in the order of the data.

    Raises:
        ValueError: If there is no such run, checkpoint, split or device.

    >>> from arcgrad.recipes.experiments import find, override
    >>> from arcgrad.recipes.inference import evaluate_run
    >>> from arcgrad.recipes.training import train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=4", "optim.epochs=1"]
    >>> _ = train(override(find("demo"), sizes), "run", quiet=True)
    >>> len(evaluate_run("run").examples)
    4
    """
    experiment, recognizer = load_run_on("evaluate_run", path, checkpoint, device)
    return evaluate_recognizer(
        recognizer,
        load_split(experiment, split),
        batch_size=experiment.optim.batch_size,
        threads=threads,
    )


def evaluate_recognizer(
    recognizer: Recognizer, dataset: Dataset, *, batch_size: int = 32, threads: int = 1
) -> Evaluation:
    """Return the error rates of a recogniser, on the device where it is.

    Args:
        recognizer: The recogniser.
        dataset: The data.
        batch_size: The number of examples in a batch.
        threads: The number of threads of torch.

    Returns:
        The errors, with an entry for each example in the order of the data.
    """
    found: dict[str, str] = {}
    with torch_threads(threads):
        for batch, scores, lengths in dataset_emissions(recognizer, dataset, batch_size=batch_size):
            texts = recognizer.transcribe(scores, lengths)
            found.update(zip(batch.ids, texts, strict=True))
    return evaluate(dataset.texts, [found[name] for name in dataset.ids])
