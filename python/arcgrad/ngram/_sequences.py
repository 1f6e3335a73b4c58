"""Sequences of tokens as streams: read in batches, and joined with their start and end tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ._table import END, START, Ints, Rows

Token: TypeAlias = int | str

# The number of tokens of a batch: sorting them is quick and needs little memory.
CHUNK = 1 << 20


def batches(
    sequences: Iterable[Any], tokenize: Callable[[Any], Sequence[Token]] | None
) -> Iterator[list[Any]]:
    """Lists of sequences with about CHUNK tokens each."""
    batch, size = [], 0
    for sequence in sequences:
        tokens: Any = sequence if tokenize is None else tokenize(sequence)
        if not hasattr(tokens, "__len__"):
            tokens = list(tokens)
        batch.append(tokens)
        # An empty sequence has a start and an end too.
        size += len(tokens) + 1
        if size >= CHUNK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def with_ends(tokens: Ints, lengths: Ints, start: bool, end: bool) -> tuple[Rows, Ints]:
    """Sequences one after the other with start and end tokens, and the sequence of each token."""
    whole = lengths + int(start) + int(end)
    last = np.cumsum(whole)
    stream = np.empty(int(whole.sum()), np.int32)
    is_token = np.ones(len(stream), np.bool_)
    if start:
        stream[last - whole] = START
        is_token[last - whole] = False
    if end:
        stream[last - 1] = END
        is_token[last - 1] = False
    stream[is_token] = tokens
    return stream, np.repeat(np.arange(len(lengths)), whole)
