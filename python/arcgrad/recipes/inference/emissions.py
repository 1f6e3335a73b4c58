"""The emissions of a recogniser, for a data set or for one input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from arcgrad.recipes.data import Batch, BucketSampler, Dataset, Example, Key, collate
from arcgrad.recipes.recognizer import Recognizer

__all__ = ["batch_emissions", "dataset_emissions", "fixed_batches", "load_batches", "log_probs"]


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
    recognizer: Recognizer, dataset: Dataset, batches: Iterable[list[Key]]
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Apply a recogniser to given batches of a data set; see :func:`dataset_emissions`."""
    recognizer.eval()
    for batch in load_batches(dataset, batches):
        yield batch, *recognizer(batch.to(recognizer.device))


def fixed_batches(dataset: Dataset, batch_size: int) -> list[list[Key]]:
    """Cut a data set into batches, from long to short examples."""
    return list(BucketSampler(dataset.lengths, batch_size, shuffle=False))


def load_batches(dataset: Dataset, batches: Iterable[list[Key]]) -> Iterable[Batch]:
    """Load the examples of batches."""
    # With its own generator: the iterator would otherwise draw from the global one, which belongs
    # to dropout.
    return DataLoader(
        dataset, batch_sampler=batches, collate_fn=collate, generator=torch.Generator()
    )


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
            f"log_probs: an input must give a frame, but its length of {values.shape[1]} gives none"
        )
    no_target = torch.zeros(0, dtype=torch.int64)
    batch = collate([Example(values, no_target, "", "")]).to(recognizer.device)
    scores, _ = recognizer(batch)
    found: Tensor = scores[0, :frames].log_softmax(-1).cpu()
    return found
