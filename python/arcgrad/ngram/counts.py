"""Counts of n-grams."""

from __future__ import annotations

import functools
import itertools
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from arcgrad._arguments import checked_class

from . import _count_files
from ._count_files import MOST_COUNTS, MOST_ORDER, MOST_TOKENS
from ._sequences import Token
from ._table import END, START, Ints, Rows, Table, show

UNKNOWN = "<unk>"
HEAD = ("num_tokens", "symbols", "start", "end")


@checked_class
class Counts:
    """How often each n-gram of up to ``order`` tokens occurs.

    A token is a number from 0. :data:`START` (``<s>``) may be the first token of an n-gram of two
    or more, :data:`END` (``</s>``) the last token of any. :func:`count` makes counts, and ``+``
    adds the counts of different texts.

    Args:
        ngrams: The count of each n-gram, which is a tuple of tokens.
        order: The length of the longest n-grams; by default of the longest given.
        num_tokens: The number of tokens; by default one more than the largest.
        symbols: The names of the tokens, or None.
        start: Whether sequences begin with :data:`START`.
        end: Whether sequences end with :data:`END`.

    Raises:
        ValueError: If an n-gram is empty or too long, a token is out of range, ``<s>`` is not the
            first or ``</s>`` not the last token, or a count is not positive.

    >>> import arcgrad as ag
    >>> counts = ag.ngram.count(["abab", "b"], order=2)
    >>> counts
    Counts(order 2, 3 + 5 n-grams, 2 tokens)
    >>> counts["ab"], counts["ba"], counts[ag.ngram.START, 1], counts["bb"]
    (2, 1, 1, 0)
    """

    def __init__(
        self,
        ngrams: Mapping[tuple[int, ...], int],
        *,
        order: int | None = None,
        num_tokens: int | None = None,
        symbols: Sequence[str] | None = None,
        start: bool = True,
        end: bool = True,
    ) -> None:
        if order is None:
            order = max([1, *map(len, ngrams)])
        check_order("Counts", order)
        by_order: list[list[tuple[int, ...]]] = [[] for _ in range(order)]
        for ngram in ngrams:
            if not 1 <= len(ngram) <= order:
                raise ValueError(
                    f"Counts: an n-gram must have 1 to {order} tokens, but {show(ngram)} has "
                    f"{len(ngram)}"
                )
            by_order[len(ngram) - 1].append(ngram)
        # Indices, since NumPy would cut fractions off.
        rows = [
            np.array([[operator.index(token) for token in ngram] for ngram in listed], np.int64)
            for listed in by_order
        ]
        rows = [found.reshape(-1, n) for n, found in enumerate(rows, 1)]
        values = [
            np.array([operator.index(ngrams[ngram]) for ngram in listed], np.int64)
            for listed in by_order
        ]
        self._set(*_distinct("Counts", rows, values, start, end), num_tokens, symbols, start, end)

    def _set(
        self,
        tables: list[Table],
        values: list[Ints],
        num_tokens: int | None,
        symbols: Sequence[str] | None,
        start: bool,
        end: bool,
    ) -> Counts:
        self._tables = tables
        self._values = values
        for value in values:
            value.setflags(write=False)
        self._symbols = None if symbols is None else check_symbols("Counts", symbols)
        self._start, self._end = bool(start), bool(end)
        least = 1 + max((int(table.rows.max(initial=-1)) for table in tables), default=-1)
        if num_tokens is None:
            num_tokens = least if symbols is None else len(symbols)
        self._num_tokens = operator.index(num_tokens)
        if self._num_tokens < least:
            raise ValueError(
                f"Counts: tokens must be below {self._num_tokens}, but there is {least - 1}"
            )
        if self._num_tokens > MOST_TOKENS + 1:
            raise ValueError(
                f"Counts: there must be at most {MOST_TOKENS + 1} tokens, but num_tokens is "
                f"{self._num_tokens}"
            )
        if self._symbols is not None and len(self._symbols) != self._num_tokens:
            raise ValueError(
                f"Counts: there must be a symbol for each of {self._num_tokens} tokens, but there "
                f"are {len(self._symbols)}"
            )
        return self

    @staticmethod
    def _of(*parts: Any) -> Counts:
        return Counts.__new__(Counts)._set(*parts)

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self._tables)

    @property
    def num_tokens(self) -> int:
        """The number of tokens without ``<s>`` and ``</s>``."""
        return self._num_tokens

    @property
    def symbols(self) -> tuple[str, ...] | None:
        """The names of the tokens, if the counts were taken from text."""
        return self._symbols

    @property
    def has_start(self) -> bool:
        """Whether sequences begin with ``<s>``."""
        return self._start

    @property
    def has_end(self) -> bool:
        """Whether sequences end with ``</s>``."""
        return self._end

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of different n-grams of each order, from 1."""
        return tuple(map(len, self._tables))

    def ngrams(self, order: int) -> Rows:
        """The n-grams of one order, a row for each, in lexicographic order."""
        return self._tables[self._place(order)].rows

    def values(self, order: int) -> Ints:
        """The counts of the n-grams of one order, in the order of :meth:`ngrams`."""
        return self._values[self._place(order)]

    def items(self, order: int | None = None) -> Iterator[tuple[tuple[int, ...], int]]:
        """The n-grams of one order, or of all, with their counts."""
        for n in range(1, self.order + 1) if order is None else [order]:
            yield from zip(
                map(tuple, self.ngrams(n).tolist()), self.values(n).tolist(), strict=True
            )

    def most_common(
        self, order: int, number: int | None = None
    ) -> list[tuple[tuple[int, ...], int]]:
        """The n-grams of one order with their counts, the most frequent first; ties in order."""
        values = self.values(order)
        best = np.argsort(-values, kind="stable")[:number]
        rows = self.ngrams(order)[best].tolist()
        return list(zip(map(tuple, rows), values[best].tolist(), strict=True))

    def prune(self, thresholds: Sequence[int]) -> Counts:
        """The n-grams that occur more often than the threshold of their order.

        Args:
            thresholds: One per order. They must not decrease, so that an n-gram is kept only with
                its prefix and its suffix.

        Raises:
            ValueError: If there is not one threshold per order, or they decrease.

        >>> import arcgrad as ag
        >>> ag.ngram.count(["abab", "b"], order=2).prune([0, 1])
        Counts(order 2, 3 + 2 n-grams, 2 tokens)
        """
        limits = check_thresholds("prune", thresholds, self.order)
        kept = [values > limit for values, limit in zip(self._values, limits, strict=True)]
        tables = [Table(t.rows[k]) for t, k in zip(self._tables, kept, strict=True)]
        values = [v[k] for v, k in zip(self._values, kept, strict=True)]
        return Counts._of(tables, values, self.num_tokens, self.symbols, self._start, self._end)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that :meth:`load` reads; an existing one is replaced atomically.

        Args:
            path: A name that ends in ``.npz`` makes a compressed NumPy file, any other a text file
                with one ``count token token ...`` per line.

        >>> import arcgrad as ag
        >>> counts = ag.ngram.count(["abab", "b"], order=2)
        >>> counts.save("counts.npz")
        >>> ag.ngram.Counts.load("counts.npz") == counts
        True
        """
        head = {
            "order": self.order,
            "num_tokens": self.num_tokens,
            "start": self._start,
            "end": self._end,
            "symbols": self.symbols,
        }
        _count_files.save(path, head, [table.rows for table in self._tables], self._values)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Counts:
        """Read a file in either format of :meth:`save`, also if it is compressed with gzip.

        Raises:
            ValueError: If the file does not hold counts; the message names the file and the line.
            OSError: If there is no such file.
        """
        op = "Counts.load"
        head, rows, values, place = _count_files.load(op, path)
        tables = _distinct(op, rows, values, head["start"], head["end"], place)
        try:
            return Counts._of(*tables, *(head[name] for name in HEAD))
        except ValueError as error:
            raise ValueError(
                f"{op}: {os.fspath(path)!r} must hold counts, but it does not: "
                + str(error).removeprefix("Counts: ")
            ) from None

    def __getitem__(self, ngram: Iterable[Token]) -> int:
        row = [self._token(token) for token in ngram]
        if not 1 <= len(row) <= self.order:
            raise ValueError(
                f"Counts: an n-gram must have 1 to {self.order} tokens, but got {len(row)}"
            )
        query = np.array([row], np.int64)
        if query.min() < END or query.max() > MOST_TOKENS:
            return 0
        place = int(self._tables[len(row) - 1].find(query.astype(np.int32))[0])
        return 0 if place < 0 else int(self._values[len(row) - 1][place])

    def __len__(self) -> int:
        return sum(self.sizes)

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        mine = {"order": self.order, "start": self._start, "end": self._end}
        theirs = {"order": other.order, "start": other._start, "end": other._end}
        for name, value in mine.items():
            if theirs[name] != value:
                raise ValueError(
                    f"Counts: counts to add must have the same {name}, but they have {value} and "
                    f"{theirs[name]}"
                )
        if (self.symbols is None) != (other.symbols is None):
            raise ValueError(
                "Counts: counts to add must both have symbols, but only one of them has"
            )
        names, rename = _join_symbols(self.symbols, other.symbols)
        tables, values = [], []
        for n in range(1, self.order + 1):
            theirs_n = other.ngrams(n)
            if rename is not None:
                theirs_n = rename[theirs_n]
            rows = np.concatenate([self.ngrams(n), theirs_n])
            weights = np.concatenate([self.values(n), other.values(n)])
            table, total = Table.count(rows, weights)
            tables.append(table)
            values.append(total)
        num_tokens = max(self.num_tokens, other.num_tokens) if names is None else len(names)
        return Counts._of(tables, values, num_tokens, names, self._start, self._end)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return (
            (self.order, self.num_tokens, self.symbols, self._start, self._end)
            == (other.order, other.num_tokens, other.symbols, other._start, other._end)
            and all(
                np.array_equal(a.rows, b.rows)
                for a, b in zip(self._tables, other._tables, strict=True)
            )
            and all(map(np.array_equal, self._values, other._values))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = " + ".join(map(str, self.sizes))
        return f"Counts(order {self.order}, {sizes} n-grams, {self.num_tokens} tokens)"

    def _place(self, order: int) -> int:
        if not 1 <= order <= self.order:
            raise ValueError(f"Counts: the order must be 1 to {self.order}, but it is {order}")
        return order - 1

    def _token(self, token: Token) -> int:
        if not isinstance(token, str):
            return operator.index(token)
        if self._symbols is None:
            raise ValueError(f"Counts: tokens have no names, but got {token!r}")
        # A token without a name has no count.
        return self._ids.get(token, MOST_TOKENS + 1)

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._symbols or ())}


def check_order(op: str, order: int) -> None:
    """Raise ValueError for an order that counts cannot have."""
    if order < 1:
        raise ValueError(f"{op}: the order must be 1 or more, but it is {order}")
    if order > MOST_ORDER:
        raise ValueError(f"{op}: the order must be {MOST_ORDER} or less, but it is {order}")


def check_symbols(op: str, symbols: Sequence[str]) -> tuple[str, ...]:
    """The symbols as a tuple; raise if one of them is not a text or occurs twice."""
    names = tuple(symbols)
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"{op}: symbols must be strings, but symbol {i} is {name!r}")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"{op}: symbols must differ, but {twice!r} occurs more than once")
    return names


def check_thresholds(op: str, thresholds: Sequence[int], order: int) -> list[int]:
    """The thresholds as a list; raise ValueError if one is missing or they decrease."""
    limits = [operator.index(limit) for limit in thresholds]
    if len(limits) != order:
        raise ValueError(
            f"{op}: there must be one threshold for each of {order} orders, but there are "
            f"{len(limits)}"
        )
    for n, (lower, upper) in enumerate(itertools.pairwise(limits), 1):
        if lower > upper:
            raise ValueError(
                f"{op}: thresholds must not decrease, but they are {lower} for order {n} and "
                f"{upper} for order {n + 1}"
            )
    return limits


def _distinct(
    op: str,
    rows: list[Ints],
    values: list[Ints],
    start: bool,
    end: bool,
    place: Callable[[int, int], str] | None = None,
) -> tuple[list[Table], list[Ints]]:
    """Checked tables of n-grams, one per order, and their counts.

    ``place(n, i)`` names the n-gram at index i of order n in errors.
    """

    def at(n: int, i: int) -> str:
        return op if place is None else f"{op}: {place(n, i)}"

    tables, totals = [], []
    for n, (ngrams, counts) in enumerate(zip(rows, values, strict=True), 1):
        bad = (ngrams < END) | (ngrams > MOST_TOKENS)
        bad[:, 1:] |= ngrams[:, 1:] == START
        bad[:, :-1] |= ngrams[:, :-1] == END
        bad[:, 0] |= (ngrams[:, 0] == START) & (ngrams.shape[1] == 1 or not start)
        bad[:, -1] |= (ngrams[:, -1] == END) & (not end)
        if bad.any():
            i = int(np.argmax(bad.any(axis=1)))
            raise ValueError(
                f"{at(n, i)}: tokens must be 0 or more, or <s> as the first of several if there is "
                f"a start, or </s> as the last if there is an end, but there is {show(ngrams[i])}"
            )
        if (counts < 1).any():
            i = int(np.argmin(counts))
            raise ValueError(
                f"{at(n, i)}: counts must be 1 or more, but {show(ngrams[i])} has the count "
                f"{counts[i]}"
            )
        if counts.sum(dtype=np.float64) >= MOST_COUNTS:
            i = int(np.argmax(counts))
            raise ValueError(
                f"{at(n, i)}: the counts of an order must add up to less than 2^63, but with the "
                f"count {counts[i]} they do not"
            )
        table, total = Table.count(ngrams.astype(np.int32), counts)
        tables.append(table)
        totals.append(total)
    return tables, totals


def _join_symbols(
    mine: tuple[str, ...] | None, theirs: tuple[str, ...] | None
) -> tuple[tuple[str, ...] | None, Rows | None]:
    """All symbols, and the new number of each of theirs; negative tokens stay unchanged."""
    if mine is None or theirs is None or mine == theirs:
        return mine, None
    numbers = {name: i for i, name in enumerate(mine)}
    renamed = [numbers.setdefault(name, len(numbers)) for name in theirs]
    # START and END index from the end of the array.
    return tuple(numbers), np.array([*renamed, END, START], np.int32)
