"""Examples, batches, data sets, and the order of batches in an epoch."""

from __future__ import annotations

import abc
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as torch_data

from ._random import check_seed, stream
from .tokenizers import Tokenizer

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

# The relative noise on the lengths of examples before they are sorted.
BLUR = 0.1

DatasetT = TypeVar("DatasetT", bound="Dataset")


@dataclass(frozen=True)
class Key:
    """An example in an epoch.

    Since the key has the epoch, the workers of a loader have no state.
    """

    epoch: int
    index: int


@dataclass(frozen=True, eq=False)
class Example:
    """An input and its text.

    Attributes:
        input: ``[height, length]``: the columns of an image, or the frames of a recording.
        target: The labels of the text, by the tokenizer of the data set.
        text: The text, with spaces between words.
        id: The name of the example in its corpus.
    """

    input: Tensor
    target: Tensor
    text: str
    id: str

    @property
    def length(self) -> int:
        """The number of columns or frames of the input."""
        return self.input.shape[-1]


@dataclass(frozen=True, eq=False)
class Batch:
    """A padded batch of examples.

    Attributes:
        inputs: ``[B, height, T]``, with zeros after the end of each input.
        input_lengths: ``[B]``, the length of each input.
        targets: ``[B, S]``, with zeros after the end of each target.
        target_lengths: ``[B]``, the length of each target.
        texts: The text of each example.
        ids: The name of each example.
    """

    inputs: Tensor
    input_lengths: Tensor
    targets: Tensor
    target_lengths: Tensor
    texts: list[str]
    ids: list[str]

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Return the batch with its inputs on a device; losses use the rest on the host."""
        return self._with_inputs(self.inputs.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Return the batch with its inputs in pinned memory."""
        return self._with_inputs(self.inputs.pin_memory())

    def _with_inputs(self, inputs: Tensor) -> Batch:
        lengths = self.input_lengths, self.targets, self.target_lengths
        return Batch(inputs, *lengths, self.texts, self.ids)


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples with zeros and stack them.

    Zero is the mean of a normalised input. The exact lengths allow networks and losses to mask the
    padding.

    Args:
        examples: At least one example, all of the same height.

    Returns:
        The batch.

    Raises:
        ValueError: If there are no examples, or their heights differ.

    >>> import torch
    >>> from arcgrad.recipes.data import Example, collate
    >>> short = Example(torch.ones(2, 3), torch.tensor([1]), "a", "first")
    >>> long = Example(torch.ones(2, 5), torch.tensor([1, 2]), "ab", "second")
    >>> batch = collate([short, long])
    >>> batch.inputs.shape, batch.input_lengths.tolist(), batch.targets.tolist()
    (torch.Size([2, 2, 5]), [3, 5], [[1, 0], [1, 2]])
    """
    if not examples:
        raise ValueError("collate: a batch must have at least one example, but it has 0")
    heights = sorted({example.input.shape[0] for example in examples})
    if len(heights) > 1:
        raise ValueError(f"collate: inputs must have the same height, but they have {heights}")
    input_lengths = torch.tensor([example.length for example in examples])
    target_lengths = torch.tensor([len(example.target) for example in examples])
    inputs = torch.zeros(len(examples), heights[0], int(input_lengths.max()))
    targets = torch.zeros(len(examples), int(target_lengths.max()), dtype=torch.int64)
    for row, example in enumerate(examples):
        inputs[row, :, : example.length] = example.input
        targets[row, : len(example.target)] = example.target
    texts = [example.text for example in examples]
    return Batch(
        inputs, input_lengths, targets, target_lengths, texts, [example.id for example in examples]
    )


class Dataset(torch_data.Dataset[Example], abc.ABC):
    """Examples with texts, a tokenizer, and augmentation that depends on seed, epoch and index.

    An example is ``dataset[Key(epoch, index)]``, or ``dataset[index]`` for epoch 0; the same key
    gives the same example in every process. Subclasses define the input.

    Args:
        ids: The name of each example.
        texts: The text of each example.
        lengths: The length of each input before augmentation, to sort by.
        tokenizer: Converts texts to labels.
        split: For ``"train"``, all letters of a text must be known to the tokenizer. For validation
            and test, unknown letters are left out of targets but stay in the texts, so that they
            count as errors.
        seed: The seed of all randomness.

    Raises:
        ValueError: If the seed is negative, or the numbers of ids, texts and lengths differ.
    """

    def __init__(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        lengths: Sequence[int],
        tokenizer: Tokenizer,
        *,
        split: Split = "train",
        seed: int = 0,
    ) -> None:
        name = type(self).__name__
        check_seed(name, seed)
        if not len(ids) == len(texts) == len(lengths):
            raise ValueError(
                f"{name}: each example must have an id, a text and a length, but there are "
                f"{len(ids)} ids, {len(texts)} texts and {len(lengths)} lengths"
            )
        self.ids, self.texts, self.lengths = list(ids), list(texts), list(lengths)
        self.tokenizer, self.split, self.seed = tokenizer, split, seed

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, key: int | Key) -> Example:
        key = key if isinstance(key, Key) else Key(0, key)
        index = key.index
        if not 0 <= index < len(self):
            raise IndexError(
                f"{type(self).__name__}: an index must be in [0, {len(self)}), but it is {index}"
            )
        text = self.texts[index]
        rng = stream("augmentation", self.seed, key.epoch, index)
        labels = self.tokenizer.encode(text, skip_unknown=self.split != "train")
        target = torch.tensor(labels, dtype=torch.int64)
        return Example(self._input(index, rng), target, text, self.ids[index])

    def with_tokenizer(self: DatasetT, tokenizer: Tokenizer) -> DatasetT:
        """Return the same examples with targets of another tokenizer."""
        other = copy.copy(self)
        other.tokenizer = tokenizer
        return other

    @abc.abstractmethod
    def _input(self, index: int, rng: np.random.Generator) -> Tensor:
        """Return the input ``[height, length]`` of an example, augmented if enabled."""


@dataclass(frozen=True)
class Splits(Generic[DatasetT]):
    """The data sets of a corpus.

    Attributes:
        train: The training data.
        validation: The validation data.
        test: The test data; empty if a corpus has no manifest of them.
        left_out: The names of examples whose files are missing or damaged.
    """

    train: DatasetT
    validation: DatasetT
    test: DatasetT
    left_out: tuple[str, ...] = field(default=(), kw_only=True)

    def with_tokenizer(self, tokenizer: Tokenizer) -> Splits[DatasetT]:
        """Return the same examples with targets of another tokenizer, such as word pieces."""
        parts = (
            part.with_tokenizer(tokenizer) for part in (self.train, self.validation, self.test)
        )
        return Splits(*parts, left_out=self.left_out)


class BucketSampler(torch_data.Sampler[list[Key]]):
    """Batches of examples of similar length, in an order that depends on the seed and the epoch.

    All processes of a distributed run make the same batches and take every ``world_size``-th
    example of each, from example ``rank`` on. So they take the same number of steps, and together
    the steps of a single process.

    Args:
        lengths: The length of each example.
        batch_size: The number of examples in a batch, over all processes.
        shuffle: Whether to add noise to lengths before they are sorted, so that batches differ
            between epochs, and to shuffle batches; otherwise batches go from long to short.
        drop_last: Whether all batches are full; up to ``batch_size - 1`` examples are then left out
            of an epoch, at random if ``shuffle``. Otherwise every example is used once, the sizes
            of batches differ by at most one, and every process has an example in each batch. If
            ``batch_size`` equals ``world_size``, left-over examples enlarge some batches.
        seed: The seed of the order.
        rank: The rank of this process.
        world_size: The number of processes.

    Raises:
        ValueError: If there are too few examples for a batch, or an argument is out of its range.

    >>> from arcgrad.recipes.data import BucketSampler
    >>> sampler = BucketSampler([5, 90, 6, 80, 7], batch_size=2, shuffle=False)
    >>> [[key.index for key in batch] for batch in sampler]
    [[1, 3], [4, 2], [0]]
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        check_seed("BucketSampler", seed)
        if not 0 <= rank < world_size:
            raise ValueError(
                f"BucketSampler: the rank must be in [0, {world_size}), but it is {rank}"
            )
        if batch_size < 1 or batch_size % world_size:
            raise ValueError(
                "BucketSampler: the batch size must be a positive multiple of the number of "
                f"processes, {world_size}, but it is {batch_size}"
            )
        self._lengths = np.asarray(lengths, np.float64)
        self._num_examples, self._batch_size = len(self._lengths), batch_size
        self._num_batches = self._num_examples // batch_size
        if not drop_last:
            rounded_up = -(-self._num_examples // batch_size)
            self._num_batches = min(rounded_up, self._num_examples // world_size)
        if self._num_batches == 0:
            raise ValueError(
                "BucketSampler: each process must have an example in a batch, but there are "
                f"{self._num_examples} examples for batches of {batch_size} and {world_size} "
                f"processes{' with drop_last' if drop_last else ''}"
            )
        self._shuffle, self._drop_last, self._seed = shuffle, drop_last, seed
        self._rank, self._world_size = rank, world_size
        self._epoch = self._done = 0

    def set_epoch(self, epoch: int, num_done: int = 0) -> None:
        """Set the epoch to iterate over, and the number of its batches to skip."""
        if epoch < 0 or not 0 <= num_done <= self._num_batches:
            raise ValueError(
                "set_epoch: the epoch must not be negative and at most "
                f"{self._num_batches} batches can be done, but they are {epoch} and {num_done}"
            )
        self._epoch, self._done = epoch, num_done

    def __len__(self) -> int:
        return self._num_batches - self._done

    def __iter__(self) -> Iterator[list[Key]]:
        for whole in self.whole_batches():
            yield self.part(whole)

    def part(self, whole: list[Key]) -> list[Key]:
        """Return the part of a whole batch that belongs to this process."""
        return whole[self._rank :: self._world_size]

    def whole_batches(self) -> list[list[Key]]:
        """Return the remaining batches of the epoch, each with the parts of all processes."""
        batches = self._batches()[self._done :]
        return [[Key(self._epoch, int(index)) for index in batch] for batch in batches]

    def _batches(self) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """Return the indices of all batches of the epoch, over all processes."""
        rng = stream("batches", self._seed, self._epoch)
        lengths, chosen = self._lengths, np.arange(self._num_examples)
        if self._shuffle:
            lengths = lengths * rng.uniform(1 - BLUR, 1 + BLUR, len(lengths))
            chosen = rng.permutation(chosen)
        if self._drop_last:
            chosen = chosen[: self._num_batches * self._batch_size]
        by_length = chosen[np.argsort(-lengths[chosen], kind="stable")]
        batches = np.array_split(by_length, self._num_batches)
        order = rng.permutation(len(batches)) if self._shuffle else range(len(batches))
        return [batches[index] for index in order]
