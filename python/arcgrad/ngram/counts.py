"""Counting n-grams."""

from __future__ import annotations

import functools
import io
import itertools
import json
import operator
import os
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from arcgrad import _files

from ._table import END, START, Ints, Rows, Table, show, windows

UNKNOWN = "<unk>"
MOST_TOKENS = 2**31 - 2

Token: TypeAlias = int | str
Progress: TypeAlias = Callable[[int], object] | bool | None

# So many tokens are counted at a time: sorting them is quick, and little memory is needed.
CHUNK = 1 << 20


class Counts:
    """How often each n-gram of up to ``order`` tokens occurs.

    A token is a number from 0. :data:`START` (``<s>``) may be the first token of an n-gram of two
    or more, :data:`END` (``</s>``) the last one of any. Made by :func:`count`. Counts of different
    texts are added with ``+``.

    Args:
        ngrams: The count of each n-gram, which is a tuple of tokens.
        order: The length of the longest n-grams; by default that of the longest given.
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
        if order < 1:
            raise ValueError(f"Counts: the order must be 1 or more, but it is {order}")
        by_order: list[list[tuple[int, ...]]] = [[] for _ in range(order)]
        for ngram in ngrams:
            if not 1 <= len(ngram) <= order:
                raise ValueError(
                    f"Counts: an n-gram must have 1 to {order} tokens, but {show(ngram)} has "
                    f"{len(ngram)}"
                )
            by_order[len(ngram) - 1].append(ngram)
        rows = [np.array(x, np.int64).reshape(-1, n) for n, x in enumerate(by_order, 1)]
        values = [np.array([ngrams[ngram] for ngram in listed], np.int64) for listed in by_order]
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
                f"Counts: tokens must be less than {self._num_tokens}, but there is {least - 1}"
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
        """The number of tokens that there are; ``<s>`` and ``</s>`` are none of them."""
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
        """The n-grams of one order with their counts, the most frequent first; ties as they are."""
        values = self.values(order)
        best = np.argsort(-values, kind="stable")[:number]
        rows = self.ngrams(order)[best].tolist()
        return list(zip(map(tuple, rows), values[best].tolist(), strict=True))

    def prune(self, thresholds: Sequence[int]) -> Counts:
        """Keeps the n-grams that occur more often than the threshold of their order.

        Args:
            thresholds: One per order. They must not decrease, so that what is left of an n-gram
                without its first or last token is kept with it.

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
        """Writes a file that :meth:`load` reads; an existing one is replaced in one step.

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
        if os.fspath(path).endswith(".npz"):
            arrays: dict[str, Any] = {"head": np.array(json.dumps(head))}
            for n in range(1, self.order + 1):
                arrays[f"ngrams{n}"] = self.ngrams(n)
                arrays[f"values{n}"] = self.values(n)
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)
            _files.write(path, buffer.getvalue())
            return
        lines = [TITLE, json.dumps(head, ensure_ascii=False)]
        for n in range(1, self.order + 1):
            columns = np.column_stack([self.values(n), self.ngrams(n)])
            lines += [" ".join(map(str, row)) for row in columns.tolist()]
        _files.write(path, ("\n".join(lines) + "\n").encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Counts:
        """Reads what :meth:`save` wrote, in either format, also if it was packed with gzip.

        Raises:
            ValueError: If the file holds no counts; the message names the line.
        """
        content = _files.read("Counts.load", path)
        if content.startswith(b"PK"):
            return _load_npz(path, content)
        return _load_text(path, content)

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
                    f"Counts: counts that are added must have the same {name}, but they have "
                    f"{value} and {theirs[name]}"
                )
        if (self.symbols is None) != (other.symbols is None):
            raise ValueError(
                "Counts: counts that are added must both have symbols, but only one of them has"
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
        # What has no name has no count either.
        return self._ids.get(token, MOST_TOKENS + 1)

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._symbols or ())}


def count(
    sequences: Iterable[Any],
    order: int,
    *,
    tokenize: Callable[[Any], Sequence[Token]] | None = None,
    symbols: Sequence[str] | None = None,
    num_tokens: int | None = None,
    start: bool = True,
    end: bool = True,
    progress: Progress = None,
) -> Counts:
    """Counts the n-grams of 1 to ``order`` tokens in sequences, which are read one after the other.

    Args:
        sequences: Sequences of tokens: numbers from 0, or strings. A string is a sequence of
            letters.
        order: The length of the longest n-grams.
        tokenize: A function that makes a sequence of tokens of each element of ``sequences``, such
            as ``str.split`` for lines of text.
        symbols: The names of the tokens, if they are strings; a token that is not among them is
            ``<unk>``, which then must be. By default they are numbered as they come.
        num_tokens: The number of tokens, if they are numbers; by default one more than the largest.
        start: Whether :data:`START` comes before each sequence. It is not counted alone.
        end: Whether :data:`END` comes after each sequence.
        progress: A function that is called now and then with the number of tokens so far; True
            shows that number on a terminal.

    Returns:
        The counts.

    Raises:
        TypeError: If a token is neither a number nor a string.
        ValueError: If the order is less than 1, a token is out of range, or it has no name.

    Time: O(tokens x order), and sorting; a million tokens take a fraction of a second.

    >>> import arcgrad as ag
    >>> ag.ngram.count([[0, 1, 0], [2]], order=2).most_common(1)
    [((-2,), 2), ((0,), 2), ((1,), 1), ((2,), 1)]
    >>> ag.ngram.count(["the cat", "the dog"], 2, tokenize=str.split).symbols
    ('the', 'cat', 'dog')
    """
    order = operator.index(order)
    if order < 1:
        raise ValueError(f"count: the order must be 1 or more, but it is {order}")
    names = _Names(symbols, num_tokens)
    report = _reporter(progress)
    # Of sizes that fall, so that an n-gram is merged about log(chunks) times.
    parts: list[Counts] = []
    done = 0
    for batch in batches(sequences, tokenize):
        tokens, lengths = names.ids(batch)
        done += len(tokens)
        parts.append(_count_chunk(tokens, lengths, order, start, end))
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            last = parts.pop()
            parts[-1] += last
        report(done)
    if progress is True and sys.stderr.isatty():
        print(file=sys.stderr)
    total = parts.pop() if parts else Counts({}, order=order, start=start, end=end)
    while parts:
        total = parts.pop() + total
    return Counts._of(total._tables, total._values, names.num_tokens, names.symbols, start, end)


class _Names:
    """Numbers for tokens, which are all numbers or all strings."""

    def __init__(self, symbols: Sequence[str] | None, num_tokens: int | None) -> None:
        self._given = None if symbols is None else check_symbols("count", symbols)
        self._limit = MOST_TOKENS if num_tokens is None else operator.index(num_tokens)
        self.num_tokens: int | None = num_tokens
        self._is_text = None if symbols is None else True
        if symbols is not None and num_tokens is not None:
            raise ValueError(
                "count: num_tokens is for tokens that are numbers, but there are symbols"
            )
        if self._given is None:
            self._ids: Any = defaultdict(itertools.count().__next__)
        else:
            self._ids = {name: i for i, name in enumerate(self._given)}
            if UNKNOWN in self._ids:
                unknown = self._ids[UNKNOWN]
                self._ids = defaultdict(lambda: unknown, self._ids)

    @property
    def symbols(self) -> tuple[str, ...] | None:
        if self._given is not None:
            return self._given
        return tuple(self._ids) if self._is_text else None

    def ids(self, batch: list[Any]) -> tuple[Ints, Ints]:
        """The tokens of some sequences one after the other, and the lengths of these."""
        lengths = np.fromiter(map(len, batch), np.int64, len(batch))
        if batch and all(isinstance(x, np.ndarray) and x.dtype.kind in "iu" for x in batch):
            self._expect(False)
            tokens = np.concatenate(batch).astype(np.int64, copy=False)
        else:
            flat = list(itertools.chain.from_iterable(batch))
            types = set(map(type, flat))
            if flat and all(issubclass(t, str) for t in types):
                self._expect(True)
                tokens = self._named(flat)
            elif all(issubclass(t, (int, np.integer)) for t in types):
                self._expect(not flat and bool(self._is_text))
                try:
                    tokens = np.array(flat, np.int64)
                except OverflowError:
                    self._refuse(max(flat, key=abs))
            else:
                listed = ", ".join(sorted(t.__name__ for t in types))
                raise TypeError(
                    f"count: tokens must be all whole numbers or all strings, but they are {listed}"
                )
        if tokens.ndim != 1:
            raise ValueError(
                f"count: a sequence must have one dimension, but one has {tokens.ndim}"
            )
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < self._limit:
            self._refuse(tokens[(tokens < 0) | (tokens >= self._limit)][0])
        return tokens, lengths

    def _refuse(self, token: Any) -> NoReturn:
        raise ValueError(
            f"count: tokens must be between 0 and {self._limit - 1}, but there is {token}"
        )

    def _expect(self, is_text: bool) -> None:
        if self._is_text not in (None, is_text):
            kinds = "strings" if self._is_text else "numbers"
            raise TypeError(
                f"count: tokens must be all {kinds}, as the first ones or the symbols are, "
                f"but there are {'strings' if is_text else 'numbers'} too"
            )
        self._is_text = is_text

    def _named(self, flat: list[str]) -> Ints:
        try:
            return np.fromiter(map(self._ids.__getitem__, flat), np.int64, len(flat))
        except KeyError as error:
            raise ValueError(
                f"count: every token must be among the symbols, but {error.args[0]!r} is not; "
                f"add it, or add {UNKNOWN!r} for all others"
            ) from None


def check_symbols(op: str, symbols: Sequence[str]) -> tuple[str, ...]:
    """The symbols as a tuple; raises if one of them occurs twice."""
    names = tuple(symbols)
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"{op}: symbols must differ, but {twice!r} occurs more than once")
    return names


def check_thresholds(op: str, thresholds: Sequence[int], order: int) -> list[int]:
    """The thresholds as a list; raises unless there is one per order and they do not decrease."""
    limits = [operator.index(limit) for limit in thresholds]
    if len(limits) != order:
        raise ValueError(
            f"{op}: there must be one threshold for each of {order} orders, but there are "
            f"{len(limits)}"
        )
    for n, (lower, upper) in enumerate(itertools.pairwise(limits), 1):
        if lower > upper:
            raise ValueError(
                f"{op}: thresholds must not decrease, but that of order {n} is {lower} and that of "
                f"order {n + 1} is {upper}"
            )
    return limits


def batches(
    sequences: Iterable[Any], tokenize: Callable[[Any], Sequence[Token]] | None
) -> Iterator[list[Any]]:
    """Lists of sequences with about CHUNK tokens together."""
    batch, size = [], 0
    for sequence in sequences:
        tokens: Any = sequence if tokenize is None else tokenize(sequence)
        if not hasattr(tokens, "__len__"):
            tokens = list(tokens)
        batch.append(tokens)
        # An empty sequence still has its ends.
        size += len(tokens) + 1
        if size >= CHUNK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _count_chunk(tokens: Ints, lengths: Ints, order: int, start: bool, end: bool) -> Counts:
    stream, sequence = with_ends(tokens, lengths, start, end)
    tables, values = [], []
    for n in range(1, order + 1):
        rows, is_within = windows(stream, sequence, n)
        if n == 1 and start:
            is_within = is_within & (stream != START)
        table, total = Table.count(rows[is_within])
        tables.append(table)
        values.append(total)
    return Counts._of(tables, values, None, None, start, end)


def with_ends(tokens: Ints, lengths: Ints, start: bool, end: bool) -> tuple[Rows, Ints]:
    """Sequences one after the other with their start and end tokens, and whose each token is."""
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


def _reporter(progress: Progress) -> Callable[[int], object]:
    if callable(progress):
        return progress
    if progress and sys.stderr.isatty():
        return lambda done: print(f"\rcount: {done:,} tokens", end="", file=sys.stderr, flush=True)
    return lambda done: None


def _distinct(
    op: str, rows: list[Ints], values: list[Ints], start: bool, end: bool
) -> tuple[list[Table], list[Ints]]:
    """Checked tables of n-grams, one per order, and their counts."""
    tables, totals = [], []
    for ngrams, counts in zip(rows, values, strict=True):
        bad = (ngrams < END) | (ngrams > MOST_TOKENS)
        bad[:, 1:] |= ngrams[:, 1:] == START
        bad[:, :-1] |= ngrams[:, :-1] == END
        bad[:, 0] |= (ngrams[:, 0] == START) & (ngrams.shape[1] == 1 or not start)
        bad[:, -1] |= (ngrams[:, -1] == END) & (not end)
        if bad.any():
            raise ValueError(
                f"{op}: tokens must be 0 or more, <s> only first of several, if there is a start, "
                f"and </s> only last, if there is an end, but there is "
                f"{show(ngrams[bad.any(axis=1)][0])}"
            )
        if (counts < 1).any():
            least = int(np.argmin(counts))
            raise ValueError(
                f"{op}: counts must be 1 or more, but that of {show(ngrams[least])} is "
                f"{counts[least]}"
            )
        table, total = Table.count(ngrams.astype(np.int32), counts)
        tables.append(table)
        totals.append(total)
    return tables, totals


def _join_symbols(
    mine: tuple[str, ...] | None, theirs: tuple[str, ...] | None
) -> tuple[tuple[str, ...] | None, Rows | None]:
    """All symbols, and the new number of each of theirs; negative tokens stay as they are."""
    if mine is None or theirs is None or mine == theirs:
        return mine, None
    numbers = {name: i for i, name in enumerate(mine)}
    renamed = [numbers.setdefault(name, len(numbers)) for name in theirs]
    # START and END index from the end of the array.
    return tuple(numbers), np.array([*renamed, END, START], np.int32)


TITLE = "arcgrad n-gram counts"
HEAD = ("num_tokens", "symbols", "start", "end")


def _load_npz(path: str | os.PathLike[str], content: bytes) -> Counts:
    op = "Counts.load"
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            head = json.loads(str(arrays["head"]))
            orders = range(1, head["order"] + 1)
            rows = [arrays[f"ngrams{n}"].astype(np.int64).reshape(-1, n) for n in orders]
            values = [arrays[f"values{n}"].astype(np.int64) for n in orders]
        tables = _distinct(op, rows, values, head["start"], head["end"])
        return Counts._of(*tables, *(head[name] for name in HEAD))
    except (KeyError, TypeError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{op}: {os.fspath(path)!r} must hold counts, but it does not: {error}"
        ) from None


def _load_text(path: str | os.PathLike[str], content: bytes) -> Counts:
    op = "Counts.load"
    lines = content.split(b"\n")
    if lines[0] != TITLE.encode():
        raise ValueError(f"{op}: {os.fspath(path)!r} must begin with {TITLE!r}, but it does not")
    try:
        head = json.loads(lines[1])
        by_order: dict[int, list[list[int]]] = {n: [] for n in range(1, head["order"] + 1)}
        rest = [head[name] for name in HEAD]
    except (IndexError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"{op}: line 2 of {os.fspath(path)!r} must describe the counts, but it does not"
        ) from None
    for number, line in enumerate(lines[2:], 3):
        if not line:
            continue
        try:
            row = list(map(int, line.split()))
            by_order[len(row) - 1].append(row)
        except (ValueError, KeyError):
            raise ValueError(
                f"{op}: line {number} must hold a count and 1 to {len(by_order)} tokens, but it is "
                f"{line.decode(errors='replace')!r}"
            ) from None
    columns = [np.array(x, np.int64).reshape(-1, n + 1) for n, x in by_order.items()]
    tables = _distinct(op, [c[:, 1:] for c in columns], [c[:, 0] for c in columns], *rest[2:])
    return Counts._of(*tables, *rest)
