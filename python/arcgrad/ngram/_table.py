"""Sets of n-grams as sorted arrays: each n-gram is packed into integer keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

START = -1
END = -2

Rows: TypeAlias = NDArray[np.int32]
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

# Keys are positive int64.
KEY_BITS = 63


def distinct(keys: Ints) -> Ints:
    """The distinct keys, ascending; numpy.unique may use a hash table, which is slower."""
    ordered: Ints = np.sort(keys)
    is_new: NDArray[np.bool_] = np.diff(ordered, prepend=-1) != 0
    return ordered[is_new]


class Index:
    """Integer keys for rows of tokens, in the lexicographic order of the rows.

    The columns are packed as bit fields. If the next column does not fit into a key, the key so far
    is replaced by its rank among the keys of the rows that made the index.
    """

    def __init__(self, rows: Rows) -> None:
        # END is the smallest token.
        self._bits = (int(rows.max(initial=0)) - END).bit_length()
        self._levels: list[Ints] = []
        self._length = rows.shape[1]
        self.keys = self._fold(rows, self._rank_new)

    def of(self, rows: Rows) -> tuple[Ints, NDArray[np.bool_]]:
        """The keys of other rows, and whether each is valid; a row without a key is not indexed."""
        is_token = (rows >= END) & (rows < (1 << self._bits) + END)
        known: NDArray[np.bool_] = np.logical_and.reduce(is_token, axis=1)
        levels = iter(self._levels)

        def rank(keys: Ints) -> tuple[Ints, int]:
            level = next(levels)
            place = np.minimum(np.searchsorted(level, keys), len(level) - 1)
            known[level[place] != keys] = False
            return place, len(level).bit_length()

        return self._fold(np.where(known[:, None], rows, 0), rank), known

    def rows(self, keys: Ints) -> Rows:
        """The rows that have these keys."""
        out = np.empty((len(keys), self._length), np.int32)
        ranked = self._ranked_columns()
        levels = reversed(self._levels)
        for column in range(self._length - 1, 0, -1):
            out[:, column] = (keys & ((1 << self._bits) - 1)) + END
            keys = keys >> self._bits
            if column in ranked:
                keys = next(levels)[keys]
        if self._length:
            out[:, 0] = keys + END
        return out

    def _ranked_columns(self) -> set[int]:
        ranked, used = set(), self._bits
        levels = iter(self._levels)
        for column in range(1, self._length):
            if used + self._bits > KEY_BITS:
                ranked.add(column)
                used = len(next(levels)).bit_length()
            used += self._bits
        return ranked

    def _rank_new(self, keys: Ints) -> tuple[Ints, int]:
        level = distinct(keys)
        self._levels.append(level)
        return np.searchsorted(level, keys), len(level).bit_length()

    def _fold(self, rows: Rows, rank: Callable[[Ints], tuple[Ints, int]]) -> Ints:
        keys = rows[:, 0].astype(np.int64) - END
        used = self._bits
        for column in rows.T[1:]:
            if used + self._bits > KEY_BITS:
                keys, used = rank(keys)
            keys <<= self._bits
            keys |= column.astype(np.int64) - END
            used += self._bits
        return keys


class Table:
    """Distinct n-grams of one length in lexicographic order.

    ``rows`` has one n-gram per row; :data:`END` and :data:`START` come before the tokens.
    """

    def __init__(self, rows: Rows) -> None:
        rows.setflags(write=False)
        self.rows = rows
        self._index: Index | None = None

    @staticmethod
    def of(rows: Rows) -> Table:
        """The distinct rows."""
        index = Index(rows)
        return Table(index.rows(distinct(index.keys)))

    @staticmethod
    def count(rows: Rows, weights: Ints | None = None) -> tuple[Table, Ints]:
        """The distinct rows, and the sum of the weights of each, by default their number."""
        index = Index(rows)
        if weights is None:
            keys, counts = np.unique(index.keys, return_counts=True)
            return Table(index.rows(keys)), counts.astype(np.int64)
        order = np.argsort(index.keys, kind="stable")
        keys = index.keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.add.reduceat(weights[order], first) if len(first) else weights[:0]
        return Table(index.rows(keys[first])), counts

    def find(self, rows: Rows) -> Ints:
        """The index of each row in the table, or -1."""
        if not len(self.rows) or not len(rows):
            return np.full(len(rows), -1, np.int64)
        if self._index is None:
            self._index = Index(self.rows)
        keys, known = self._index.of(rows)
        own = self._index.keys
        place = np.minimum(np.searchsorted(own, keys), len(own) - 1)
        return np.where(known & (own[place] == keys), place, -1)

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> Rows:
        return self.rows

    def __setstate__(self, rows: Rows) -> None:
        self.__init__(rows)  # type: ignore[misc]


def windows(tokens: Rows, sequence: Ints, length: int) -> tuple[Rows, NDArray[np.bool_]]:
    """Every run of `length` tokens, and whether it lies within one sequence.

    Args:
        tokens: Sequences one after the other.
        sequence: The number of the sequence that each token is in.
        length: The number of tokens of a run.
    """
    if len(tokens) < length:
        return np.empty((0, length), np.int32), np.empty(0, np.bool_)
    rows = np.lib.stride_tricks.sliding_window_view(tokens, length)
    last = len(tokens) - length + 1
    return rows, sequence[:last] == sequence[length - 1 :]


def take(values: Floats, place: Ints, otherwise: Any) -> Floats:
    """The value at each index of a table, or `otherwise` for the index -1."""
    if not len(values):
        return np.broadcast_to(otherwise, len(place)).astype(np.float64)
    return np.where(place >= 0, values[place], otherwise)


def show(ngram: Iterable[Any], symbols: tuple[str, ...] | None = None) -> str:
    """An n-gram as error messages show it."""
    special = {START: "<s>", END: "</s>"}
    words = []
    for token in map(int, ngram):
        name = str(token) if symbols is None or token >= len(symbols) else symbols[token]
        words.append(special.get(token, name))
    return f"({', '.join(words)})"


def check_shorter(
    op: str, tables: list[Table], symbols: tuple[str, ...] | None, *, without: str
) -> None:
    """Raise ValueError unless each n-gram without its "first" or "last" token is one too."""
    part = slice(1, None) if without == "first" else slice(None, -1)
    for shorter, table in itertools.pairwise(tables):
        missing = np.flatnonzero(shorter.find(table.rows[:, part]) < 0)
        if len(missing):
            row = table.rows[missing[0]]
            raise ValueError(
                f"{op}: an n-gram without its {without} token must be an n-gram too, but there is "
                f"{show(row, symbols)} and no {show(row[part], symbols)}"
            )
