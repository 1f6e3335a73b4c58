"""The forms in which targets come: padded, concatenated, lists, graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

import arcgrad as ag

from ._bridge import ints

Lengths = npt.NDArray[np.int64]


class Targets:
    """The targets of a batch.

    Attributes:
        labels: What :func:`arcgrad.tokens.alignment_graph` takes: an array, padded ``[B, S]`` or
            concatenated, or a list with a label sequence or a graph for each example.
        lengths: Of a padded or concatenated array, the length of each target; else None.
        num_labels: The number of labels of the emissions.
        size: The number of targets.
    """

    __slots__ = ("_sizes", "labels", "lengths", "num_labels", "size")

    def __init__(self, op: str, targets: Any, lengths: Any, batch: int, num_labels: int) -> None:
        self.num_labels = num_labels
        self.labels = _read(op, targets)
        self.lengths = None if lengths is None else _read_lengths(op, lengths)
        self._sizes: Lengths | None = None
        if isinstance(self.labels, list):
            self.size = len(self.labels)
            if self.lengths is not None:
                self._sizes, self.lengths = self.lengths, None
        elif self.labels.ndim == 2:
            self.size, width = self.labels.shape
            if self.lengths is None:
                self.lengths = np.full(self.size, width)
            elif (self.lengths > width).any():
                example = int((self.lengths > width).argmax())
                raise ValueError(
                    f"{op}: a target length must be at most {width}, the width of the targets, but "
                    f"that of example {example} is {self.lengths[example]}"
                )
        elif self.lengths is None:
            if batch != 1:
                raise ValueError(
                    f"{op}: targets of one dimension hold {batch} targets one after the other and "
                    "need target_lengths, but there are none"
                )
            self.labels, self.size = self.labels[None], 1
            self.lengths = np.full(1, self.labels.shape[1])
        else:
            self.size = len(self.lengths)
            if int(self.lengths.sum()) != self.labels.size:
                raise ValueError(
                    f"{op}: the target lengths must add up to the number of labels, "
                    f"{self.labels.size}, but they add up to {self.lengths.sum()}"
                )
        count = self.size if self.lengths is None else len(self.lengths)
        if self.size != batch or count != batch:
            raise ValueError(
                f"{op}: there must be one target per example, {batch} in all, but there are "
                f"{self.size}" + ("" if count == self.size else f" targets and {count} lengths")
            )

    def sizes(self, op: str) -> Lengths:
        """The length of each target, by which a mean divides."""
        if self.lengths is not None:
            return self.lengths
        if self._sizes is None:
            if any(isinstance(target, ag.Graph) for target in self.labels):
                raise ValueError(
                    f"{op}: reduction 'mean' divides by the lengths of targets, but those of "
                    "graphs are not known; pass target_lengths, or another reduction"
                )
            self._sizes = np.array([len(target) for target in self.labels], np.int64)
        if len(self._sizes) != self.size:
            raise ValueError(
                f"{op}: there must be one target length per example, {self.size} in all, but there "
                f"are {len(self._sizes)}"
            )
        return self._sizes

    def check_labels(self, op: str) -> None:
        """Raises if a label is not one of the emissions'."""
        # Padding may hold anything, so what looks bad is looked at again without it.
        if not isinstance(self.labels, list) and self.labels.max(initial=0) < self.num_labels:
            return
        for i, target in enumerate(self.sequences()):
            bad = np.flatnonzero(np.asarray(target) >= self.num_labels)
            if bad.size:
                raise ValueError(
                    f"{op} (example {i} of {self.size}): a label of a target must be below "
                    f"{self.num_labels}, the number of labels of the emissions, but label {bad[0]} "
                    f"is {target[bad[0]]}"
                )

    def sequences(self) -> list[Any]:
        """One label sequence or graph per example."""
        if isinstance(self.labels, list):
            return self.labels
        assert self.lengths is not None
        if self.labels.ndim == 2:
            return [row[:n] for row, n in zip(self.labels, self.lengths, strict=True)]
        return np.split(self.labels, np.cumsum(self.lengths)[:-1]) if self.size else []


def _read(op: str, targets: Any) -> Any:
    if isinstance(targets, ag.Graph):
        return [targets]
    if isinstance(targets, Tensor | np.ndarray):
        array = ints(targets)
        if array.ndim not in (1, 2):
            raise ValueError(
                f"{op}: targets must have one dimension or two, but their shape is "
                f"{list(array.shape)}"
            )
        if array.dtype.kind not in "iu":
            raise TypeError(f"{op}: targets must hold whole numbers, but they are {array.dtype}")
        return array
    if not isinstance(targets, Sequence):
        raise TypeError(
            f"{op}: targets must be a tensor, an array or a list, but they are "
            f"{type(targets).__name__}"
        )
    if any(isinstance(target, int | np.integer) for target in targets):
        return np.asarray(targets, np.int64)
    return [target if isinstance(target, ag.Graph) else ints(target) for target in targets]


def _read_lengths(op: str, lengths: Any) -> Lengths:
    array = np.asarray(ints(lengths))
    if array.ndim == 0:
        array = array[None]
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            f"{op}: target_lengths must be whole numbers in one dimension, but they are "
            f"{array.dtype} of the shape {list(array.shape)}"
        )
    if array.size and array.min() < 0:
        raise ValueError(
            f"{op}: target_lengths must be 0 or more, but that of example {array.argmin()} is "
            f"{array.min()}"
        )
    return array.astype(np.int64, copy=False)
