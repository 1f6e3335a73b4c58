"""The emissions of a recogniser, for a data set or for one input."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import data as torch_data

from arcgrad.recipes.data import Batch, BucketSampler, Dataset, Example, Key, collate
from arcgrad.recipes.recognizer import Recognizer

__all__ = [
    "batch_emissions",
    "dataset_emissions",
    "default_workers",
    "fixed_batches",
    "load_batches",
    "log_probs",
]

# The number of examples above which other processes load data by default, and how many do at most.
LARGE, MOST_WORKERS = 1000, 4


def dataset_emissions(
    recognizer: Recognizer, dataset: Dataset, *, batch_size: int = 32
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Apply a recogniser to a data set, without gradients.

    Args:
        recognizer: The recogniser, which is set to evaluation mode.
        dataset: The data, which are visited from long to short examples.
        batch_size: The number of examples in a batch.

    Returns:
        An iterator over batches, with their emissions and the lengths of the emissions.
    """
    return batch_emissions(recognizer, dataset, fixed_batches(dataset, batch_size))


@torch.no_grad()
def batch_emissions(
    recognizer: Recognizer, dataset: Dataset, batches: Iterable[list[Key]], workers: int = 0
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Apply a recogniser to given batches of a data set; see :func:`dataset_emissions`."""
    recognizer.eval()
    for batch in load_batches(dataset, batches, workers, recognizer.device):
        yield batch, *recognizer(batch.to(recognizer.device, non_blocking=True))


def fixed_batches(dataset: Dataset, batch_size: int) -> list[list[Key]]:
    """Cut a data set into batches, from long to short examples."""
    return list(BucketSampler(dataset.lengths, batch_size, shuffle=False))


class _Batches(torch_data.Dataset[Batch | Exception]):
    """The batches of a data set; an error of a file is returned, as processes lose its class."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __getitem__(self, keys: list[Key]) -> Batch | Exception:
        try:
            return collate([self.dataset[key] for key in keys])
        except (OSError, ValueError) as error:
            return error


def load_batches(
    dataset: Dataset,
    batches: Iterable[list[Key]],
    workers: int = 0,
    device: torch.device | None = None,
) -> Iterator[Batch]:
    """Load the examples of batches, in order.

    Args:
        dataset: The data.
        batches: The examples of each batch.
        workers: The number of processes that load and collate the next batches. Examples depend
            on their keys alone, so it changes no batch.
        device: The device of the network. For a GPU, batches are in pinned memory.
    """
    loader = torch_data.DataLoader(
        _Batches(dataset),
        batch_size=None,
        sampler=batches,
        collate_fn=_unchanged,
        num_workers=workers,
        worker_init_fn=ignore_signals,
        multiprocessing_context="fork" if workers else None,
        pin_memory=device is not None and device.type == "cuda",
        # The iterator would otherwise draw from the global generator, which belongs to dropout.
        generator=torch.Generator(),
    )
    for batch in loader:
        if isinstance(batch, Exception):
            raise batch
        yield batch


def _unchanged(batch: Any) -> Any:
    return batch


def ignore_signals(*_: object) -> None:
    """Ignore the signals that end a training, since its own process ends those that load data."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def default_workers(num_examples: int, processes: int = 1) -> int:
    """Return the number of processes that load data: for large data, one per idle processor.

    Args:
        num_examples: The number of examples of an epoch.
        processes: The number of processes of the training.
    """
    if num_examples < LARGE or sys.platform != "linux":
        return 0
    return max(0, min(MOST_WORKERS, len(os.sched_getaffinity(0)) // processes - 1))


@torch.no_grad()
def log_probs(recognizer: Recognizer, values: Tensor) -> Tensor:
    """Return the log-probabilities ``[T, C]`` of labels for one input.

    They differ from the emissions by one number per frame, so they rank paths in the same way.

    Args:
        recognizer: The recogniser.
        values: An input ``[height, length]``.

    Raises:
        ValueError: If the input is too short for a single frame.

    >>> import torch
    >>> from arcgrad.recipes.data import Letters
    >>> from arcgrad.recipes.experiments import find
    >>> from arcgrad.recipes.inference import log_probs
    >>> from arcgrad.recipes.recognizer import Recognizer
    >>> recognizer = Recognizer(find("demo"), Letters(("▁", "a", "b")), height=16)
    >>> log_probs(recognizer, torch.zeros(16, 30)).shape
    torch.Size([15, 4])
    """
    frames = int(recognizer.network.output_lengths([values.shape[1]])[0])  # type: ignore[operator]
    if frames < 1:
        raise ValueError(
            "log_probs: an input must be long enough for a frame, but one of height "
            f"{values.shape[0]} and length {values.shape[1]} is too short"
        )
    no_target = torch.zeros(0, dtype=torch.int64)
    batch = collate([Example(values, no_target, "", "")]).to(recognizer.device)
    scores, _ = recognizer(batch)
    found: Tensor = scores[0, :frames].log_softmax(-1).cpu()
    return found
