"""Targets of a batch in every form that a loss takes: padded, concatenated, lists, graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

import arcgrad as ag

from ._leaves import to_counts, to_ints

Lengths = npt.NDArray[np.int64]


class Targets:
    """The targets of a batch.

    :func:`arcgrad.tokens.alignment_graph` checks whether labels and lengths fit each other.

    Attributes:
        labels: An array, padded ``[B, S]`` or concatenated, or a list with a label sequence or a
            graph for each example.
        lengths: The length of each target of a padded or concatenated array; else None.
        num_labels: The number of labels of the emissions.
        dtype: The type for weights of graphs: the precision of the emissions.
        size: The number of targets.
    """

    __slots__ = ("_op", "_sizes", "dtype", "labels", "lengths", "num_labels", "size")

    def __init__(
        self,
        op: str,
        targets: Any,
        lengths: Any,
        batch: int,
        num_labels: int,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        self._op, self.num_labels, self.dtype, self.size = op, num_labels, dtype, batch
        self.labels = _read(op, targets)
        width = None if isinstance(self.labels, list) else self.labels.shape[-1]
        self.lengths = None if lengths is None else _read_lengths(op, lengths, width)
        self._sizes = self.lengths
        count = batch if self.lengths is None else len(self.lengths)
        if isinstance(self.labels, list):
            self._check_list(op, self.lengths)
            self.lengths, found = None, len(self.labels)
        elif self.labels.ndim == 2:
            found = self.labels.shape[0]
        elif self.lengths is None and batch != 1:
            raise ValueError(
                f"{op}: targets in one dimension, {batch} one after the other, need "
                "target_lengths, but there are none"
            )
        else:
            found = batch
            if self.lengths is None:
                self.labels = self.labels[None]
        if found != batch or count != batch:
            raise ValueError(
                f"{op}: there must be one target per example, {batch} in all, but there are "
                f"{found} targets" + (f" and {count} target lengths" if lengths is not None else "")
            )

    def _check_list(self, op: str, lengths: Lengths | None) -> None:
        if lengths is None or len(lengths) != len(self.labels):
            return
        for i, (target, length) in enumerate(zip(self.labels, lengths.tolist(), strict=True)):
            expected = length if isinstance(target, ag.Graph) else len(target)
            if length < 0 or length != expected:
                raise ValueError(
                    f"{op}: the length of target {i} of a list must be {expected}, the length of "
                    f"the target, but it is {length}; leave target_lengths out"
                )

    def sizes(self) -> Lengths:
        """The length of each target: the mean divides by it."""
        if self._sizes is None:
            if not isinstance(self.labels, list):
                self._sizes = np.full(self.size, self.labels.shape[1])
            elif any(isinstance(target, ag.Graph) for target in self.labels):
                raise ValueError(
                    f"{self._op}: reduction 'mean' divides by the lengths of targets, but graphs "
                    "have none; pass target_lengths, or another reduction"
                )
            else:
                self._sizes = np.array([len(target) for target in self.labels], np.int64)
        return self._sizes

    def label_sequences(self) -> list[list[int]]:
        """The labels of each example; raise TypeError for anything else, such as a graph."""
        found = []
        for i, target in enumerate(self.sequences()):
            if isinstance(target, ag.Graph):
                raise TypeError(f"{self._op}: targets must be labels, but target {i} is a graph")
            try:
                labels = np.asarray(target)
            except ValueError:  # NumPy's, of nested lists
                labels = np.array(None)
            if labels.ndim != 1 or (labels.dtype.kind not in "iu" and labels.size):
                raise TypeError(
                    f"{self._op}: a target must hold whole numbers in one dimension, but target "
                    f"{i} is {target!r}"
                )
            found.append(labels.tolist())
        return found

    def sequences(self) -> list[Any]:
        """One label sequence or graph per example."""
        if isinstance(self.labels, list):
            return self.labels
        if self.lengths is not None:
            most = self.labels.shape[1] if self.labels.ndim == 2 else self.labels.size
            for i, length in enumerate(self.lengths.tolist()):
                if not 0 <= length <= most:
                    raise ValueError(
                        f"{self._op}: a target length must be between 0 and {most}, but for "
                        f"example {i} it is {length}"
                    )
            if self.labels.ndim == 1 and self.lengths.sum() != self.labels.size:
                raise ValueError(
                    f"{self._op}: target lengths must add up to the {self.labels.size} labels, but "
                    f"they add up to {self.lengths.sum()}"
                )
        if self.labels.ndim == 2:
            if self.lengths is None:
                return list(self.labels)
            return [row[:n] for row, n in zip(self.labels, self.lengths, strict=True)]
        assert self.lengths is not None  # else it is a matrix
        return np.split(self.labels, np.cumsum(self.lengths)[:-1]) if self.size else []


def _read(op: str, targets: Any) -> Any:
    if isinstance(targets, (Tensor, np.ndarray)):
        array = to_ints(targets)
        if array.ndim not in (1, 2):
            raise ValueError(
                f"{op}: targets must have one dimension or two, but their shape is "
                f"{list(array.shape)}"
            )
        if array.dtype.kind not in "iu":
            raise TypeError(f"{op}: targets must hold whole numbers, but they are {array.dtype}")
        return array
    if isinstance(targets, ag.Graph):
        return [targets]
    if not isinstance(targets, Sequence):
        raise TypeError(
            f"{op}: targets must be a tensor, an array or a list, but they are "
            f"{type(targets).__name__}"
        )
    if any(isinstance(target, int | np.integer) for target in targets):
        is_flat = all(np.ndim(target) == 0 for target in targets)
        array = np.asarray(targets if is_flat else None)
        if array.dtype.kind not in "iu":
            raise TypeError(
                f"{op}: targets must hold whole numbers, but they are {targets!r}; a batch "
                "may be a list with a sequence for each example"
            )
        return array
    found = [target if isinstance(target, ag.Graph) else to_ints(target) for target in targets]
    for i, target in enumerate(found):
        if not isinstance(target, ag.Graph | Sequence) and np.ndim(target) != 1:
            raise TypeError(
                f"{op}: a target must be a sequence of labels or a graph, but target {i} is "
                f"{targets[i]!r}"
            )
    return found


def _read_lengths(op: str, lengths: Any, width: int | None) -> Lengths:
    array = to_counts(op, lengths, width)
    if array.ndim == 0:
        array = array[None]
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise TypeError(
            f"{op}: target_lengths must be whole numbers in one dimension, but they are "
            f"{array.dtype} of the shape {list(array.shape)}"
        )
    return array if array.size else array.astype(np.int64)
