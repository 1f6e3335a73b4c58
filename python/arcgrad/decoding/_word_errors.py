"""Words of a result compared with those of a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def align(reference: Sequence[Any], words: Sequence[Any]) -> list[tuple[int | None, int | None]]:
    """Pairs of indices of equal, replaced, missing and extra words, with the fewest errors."""
    rows, cols = len(reference), len(words)
    cost = np.zeros((rows + 1, cols + 1), np.int64)
    cost[:, 0], cost[0, :] = np.arange(rows + 1), np.arange(cols + 1)
    for i in range(rows):
        for j in range(cols):
            replaced = cost[i, j] + (reference[i] != words[j])
            cost[i + 1, j + 1] = min(replaced, cost[i, j + 1] + 1, cost[i + 1, j] + 1)
    pairs: list[tuple[int | None, int | None]] = []
    i, j = rows, cols
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (reference[i - 1] != words[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif j and cost[i, j] == cost[i, j - 1] + 1:
            j -= 1
            pairs.append((None, j))
        else:
            i -= 1
            pairs.append((i, None))
    return pairs[::-1]


def num_errors(reference: Sequence[Any], words: Sequence[Any]) -> int:
    """The edit distance."""
    pairs = align(reference, words)
    return sum(i is None or j is None or reference[i] != words[j] for i, j in pairs)
